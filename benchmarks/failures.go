package main

import (
	"fmt"
	"math"
	"path/filepath"
	"time"
)

const (
	failuresBatch  = 256 // of all trainers
	failuresEpochs = 4
)

var failuresSection = section{
	name: "failures",
	about: "what a failure in the middle of the second of four epochs costs a training of 4,000 " +
		"files of 110 KB on slowfs, set to 200 MB/s and 2 ms an open, by 4 ranks with a trainer each, " +
		"memory for half of the data, and steps that sleep 1.5 times as long as storage reads. Killed: " +
		"one rank gets SIGKILL, and run restarts the cache. Requeued: the job ends with a checkpoint, " +
		"and one of two ranks resumes it. It fails unless both train on each sample once an epoch.",
	named:   true,
	measure: ratios((*bench).failures),
}

// survived is what the trainers of a run report together.
type survived struct {
	took, first time.Duration // from the first trainer's start to the end, and to its first batch
	longest     time.Duration // wait of a trainer for a batch
	samples     int
	bytes       int64 // read from storage
}

func (b *bench) failures() ([]row, error) {
	samples := 4_000
	if b.quick {
		samples = 1_000
	}
	e, end, err := b.emulate(samples, 110_000, slowPFS)
	if err != nil {
		return nil, err
	}
	defer end()
	reading := float64(e.bytes()) / pfsBandwidth
	steps := (samples + failuresBatch - 1) / failuresBatch
	middle := fmt.Sprint(steps + steps/2)
	step := fmt.Sprint(1.5 * reading / float64(steps))
	run := func(ranks int, flags ...string) (survived, error) {
		return b.trainedThrough(e, ranks, append([]string{"--step-seconds", step}, flags...)...)
	}
	alone, err := run(pfsRanks)
	if err != nil {
		return nil, err
	}
	killed, err := run(pfsRanks, "--kill-at", middle)
	if err != nil {
		return nil, err
	}
	before, err := run(pfsRanks, "--stop-at", middle)
	if err != nil {
		return nil, err
	}
	after, err := run(pfsRanks / 2)
	if err != nil {
		return nil, err
	}
	all := failuresEpochs * samples
	if alone.samples != all || killed.samples != all || before.samples+after.samples != all {
		return nil, fmt.Errorf("%d, %d, and %d and %d samples were trained, not %d", alone.samples,
			killed.samples, before.samples, after.samples, all)
	}
	return []row{
		ratioRow("one of 4 ranks killed: time / undisturbed", secondsText(killed.took),
			secondsText(alone.took), killed.took.Seconds()/alone.took.Seconds(), none, 0),
		ratioRow("the same: longest wait for a batch / undisturbed", secondsText(killed.longest),
			secondsText(alone.longest), killed.longest.Seconds()/alone.longest.Seconds(), none, 0),
		ratioRow("the same: bytes read / undisturbed", megabytes(killed.bytes), megabytes(alone.bytes),
			float64(killed.bytes)/float64(alone.bytes), atMost, 1.03),
		ratioRow("requeued on 2 ranks: wait for the first batch / at the first start",
			secondsText(after.first), secondsText(before.first),
			after.first.Seconds()/before.first.Seconds(), none, 0),
	}, nil
}

func megabytes(n int64) string { return fmt.Sprintf("%d MB", n/1e6) }

// trainedThrough runs failures.py with a trainer per rank.
func (b *bench) trainedThrough(e *emulated, ranks int, flags ...string) (survived, error) {
	state, out := filepath.Join(b.dir, "state.json"), filepath.Join(b.dir, "failures")
	e.ResetStats()
	err := b.runTool([]string{"--data", e.Dir(), "--memory", "50%", "--ranks", fmt.Sprint(ranks)},
		"failures.py", append([]string{
			"--out", out, "--state", state, "--epochs", fmt.Sprint(failuresEpochs),
			"--global-batch", fmt.Sprint(failuresBatch),
		}, flags...)...)
	if err != nil {
		return survived{}, err
	}
	all, began, first, ended := survived{bytes: e.Stats().Bytes}, math.Inf(1), math.Inf(1), 0.0
	for rank := range ranks {
		var r struct {
			Began, First, Ended, Longest float64
			Samples                      int
		}
		if err := readJSON(fmt.Sprintf("%s.%d", out, rank), &r); err != nil {
			return survived{}, err
		}
		began, first, ended = min(began, r.Began), min(first, r.First), max(ended, r.Ended)
		all.longest = max(all.longest, seconds(r.Longest))
		all.samples += r.Samples
	}
	all.took, all.first = seconds(ended-began), seconds(first-began)
	return all, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
