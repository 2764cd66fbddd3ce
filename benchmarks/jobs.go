package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rankpool/benchmarks/simulator"
	"rankpool/benchmarks/slowfs"
	"rankpool/scheduler/systems"
)

const (
	jobsBatch    = 64
	jobsCapacity = 0.2
	// Of each training: as fast as slowfs can feed seven of them beside other programs.
	jobsStep = 50 * time.Millisecond
	// A fifth of what slowfs opens in a second without limits, so that this is the bottleneck.
	jobsFilesPerSecond = 1500
)

var jobsSection = section{
	name: "jobs",
	about: "trainings with seeds 0, 1, … on 20,000 files of 16 KB, started by run --trainings, one " +
		"rank, memory for 20 %. Data sets read an epoch: what slowfs has given all together over " +
		"the data's bytes and a training's epochs; next to the simulator's figure, what is read " +
		"to measure the benefit included, and that of " +
		"Bélády's MIN, which knows how the trainings interleave. Slow ones take steps twice as long " +
		"for as many epochs. Wall time: four without steps, over slowfs that gives 1,500 files a " +
		"second, next to four runs with one each and as much memory each, at the same time; the " +
		"bound is what the simulator reads for both.",
	named:   true,
	measure: ratios((*bench).jobs),
}

// jobsRun is several trainings that begin together.
type jobsRun struct {
	system          string // a published one, which the sampler "system" draws for; "" for none
	sampler         string
	trainings, slow int
	epochs          int
	step            time.Duration
}

func (r jobsRun) String() string {
	how := "in step"
	if r.slow > 0 {
		how = fmt.Sprintf("%d of them at half the pace", r.slow)
	}
	return fmt.Sprintf("%d trainings, %s %s", r.trainings, cmp.Or(r.system, r.sampler), how)
}

func (b *bench) jobs() ([]row, error) {
	samples, epochs := 20_000, 5
	if b.quick {
		samples, epochs = 1_000, 2
	}
	e, end, err := b.emulate(samples, 16_000, slowPFS)
	if err != nil {
		return nil, err
	}
	defer func() { end() }()
	var rows []row
	for _, c := range []struct {
		jobsRun
		bar float64
	}{
		{jobsRun{"", "chunks", 7, 0, epochs, jobsStep}, 0.95},
		{jobsRun{"", "chunks", 7, 3, epochs, jobsStep}, 1.65},
		{jobsRun{"", "torch", 7, 0, epochs, jobsStep}, 3.4},
		{jobsRun{"quiver", "system", 7, 0, epochs, jobsStep}, 0.95},
	} {
		r, err := b.jobsReads(e, c.jobsRun, c.bar)
		if err != nil {
			return rows, fmt.Errorf("%v: %w", c.jobsRun, err)
		}
		r.tell()
		rows = append(rows, r)
	}
	b.unmount()
	slow := slowPFS
	slow.Bandwidth = slowfs.Bytes(jobsFilesPerSecond * e.sampleBytes)
	if e.Server, err = b.mount(filepath.Join(b.dir, "source"), e.Dir(), slow); err != nil {
		return rows, err
	}
	for _, c := range []struct {
		sampler string
		bar     float64
	}{{"chunks", 0.35}, {"torch", 0.7}} {
		r, err := b.jobsWall(e, jobsRun{"", c.sampler, 4, 0, min(3, epochs), 0}, c.bar)
		if err != nil {
			return rows, fmt.Errorf("wall time, %s: %w", c.sampler, err)
		}
		r.tell()
		rows = append(rows, r)
	}
	return rows, nil
}

// jobsReads measures what trainings on one cache read, in data sets per epoch.
func (b *bench) jobsReads(e *emulated, r jobsRun, limit float64) (row, error) {
	what, simulated := "data sets read an epoch", ""
	if r.system == "" { // a test of the simulator has seven books of Quiver
		ours, best, err := r.simulate(e.samples)
		if err != nil {
			return row{}, err
		}
		what, simulated = what+" / simulated, MIN", fmt.Sprintf("%.3f, %.3f", ours, best)
	}
	e.ResetStats()
	if _, err := b.trainJobs(e, r, false); err != nil {
		return row{}, err
	}
	read := float64(e.Stats().Bytes) / float64(e.bytes()) / float64(r.epochs)
	return plainRow(fmt.Sprintf("%v: %s", r, what), fmt.Sprintf("%.3f", read), simulated, read,
		limit, fmt.Sprint(limit)), nil
}

// jobsWall compares the wall time of trainings on one cache with that of a cache for each.
func (b *bench) jobsWall(e *emulated, r jobsRun, limit float64) (row, error) {
	together, _, err := r.simulate(e.samples)
	if err != nil {
		return row{}, err
	}
	alone, _, err := jobsRun{"", r.sampler, 1, 0, r.epochs, r.step}.simulate(e.samples)
	if err != nil {
		return row{}, err
	}
	shared, err := b.trainJobs(e, r, false)
	if err != nil {
		return row{}, err
	}
	apart, err := b.trainJobs(e, r, true)
	if err != nil {
		return row{}, err
	}
	what := fmt.Sprintf("%v: wall time / %d runs (bound %.3f)", r, r.trainings,
		together/alone/float64(r.trainings))
	return ratioRow(what, secondsText(shared), secondsText(apart), shared.Seconds()/apart.Seconds(),
		atMost, limit), nil
}

// simulate returns what the trainings read, and what MIN reads for them, in data sets per epoch.
func (r jobsRun) simulate(samples int) (ours, best float64, err error) {
	system, err := systems.Find("rankpool")
	if err != nil {
		return 0, 0, err
	}
	trace := &simulator.Trace{}
	for range r.epochs { // these samplers use no losses
		trace.Losses = append(trace.Losses, make([]float32, samples))
	}
	var lanes []simulator.Lane
	for i := range r.trainings {
		step := max(r.step, time.Millisecond)
		if i >= r.trainings-r.slow {
			step *= 2
		}
		lanes = append(lanes, simulator.Lane{Name: fmt.Sprint(i), Seed: int64(i), Step: step})
	}
	result, err := simulator.RunLanes(simulator.Config{
		Trace: trace, System: system, Sampler: r.sampler, Capacity: jobsCapacity, Ranks: 1,
		BatchSize: jobsBatch,
	}, lanes)
	if err != nil {
		return 0, 0, err
	}
	one := float64(samples * r.epochs)
	return float64(result.Reads+result.ProbeReads) / one, float64(result.MinReads) / one, nil
}

// trainJobs trains on one cache, or on one for each training, and returns the time from the first
// training's start to the last one's end.
func (b *bench) trainJobs(e *emulated, r jobsRun, apart bool) (time.Duration, error) {
	out := filepath.Join(b.dir, "job")
	results, err := filepath.Glob(out + ".*")
	for _, path := range results {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return 0, err
	}
	flags := []string{
		"--data", e.Dir(), "--memory", fmt.Sprintf("%.0f%%", 100*jobsCapacity), "--tune", "progress=0",
	}
	if r.system != "" {
		flags = append(flags, "--system", r.system)
	}
	args := []string{
		"--out", out, "--sampler", r.sampler, "--trainings", fmt.Sprint(r.trainings),
		"--slow", fmt.Sprint(r.slow), "--epochs", fmt.Sprint(r.epochs), "--batch",
		fmt.Sprint(jobsBatch), "--step-seconds", fmt.Sprint(r.step.Seconds()),
	}
	if apart {
		err = b.runApart(flags, args, r.trainings)
	} else {
		err = b.runTool(append(flags, "--trainings", fmt.Sprint(r.trainings)), "jobs.py", args...)
	}
	if err != nil {
		return 0, err
	}
	began, ended := math.Inf(1), 0.0
	for n := range r.trainings {
		var one struct {
			Began, Ended   float64
			Bytes, Missing int64
		}
		if err := readJSON(fmt.Sprintf("%s.%d", out, n), &one); err != nil {
			return 0, err
		}
		if one.Missing > 0 || one.Bytes < e.bytes()*int64(r.epochs) {
			return 0, fmt.Errorf("training %d was given %d bytes, and %d samples were missing", n,
				one.Bytes, one.Missing)
		}
		began, ended = min(began, one.Began), max(ended, one.Ended)
	}
	return time.Duration((ended - began) * float64(time.Second)), nil
}

// runApart trains each training with a cache of its own, at the same time.
func (b *bench) runApart(flags, args []string, trainings int) error {
	failed := make([]error, trainings)
	var all sync.WaitGroup
	for n := range trainings {
		all.Go(func() {
			failed[n] = b.runTool(flags, "jobs.py",
				append([]string{"--number", fmt.Sprint(n)}, args...)...)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}
