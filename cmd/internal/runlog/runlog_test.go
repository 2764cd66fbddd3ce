package runlog

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"rankpool/cmd/internal/runlog/runlogtest"
	"rankpool/mpicache/stats"
)

var update = flag.Bool("update", false, "write the golden file instead of comparing with it")

// read returns the run of logs, one a file.
func read(t *testing.T, logs ...string) *Run {
	t.Helper()
	var b Builder
	for _, log := range logs {
		b.NextFile()
		broken, err := Read(strings.NewReader(log), b.Add)
		if err != nil {
			t.Fatal(err)
		}
		b.AddBroken(broken)
	}
	return b.Run()
}

func small() runlogtest.Training {
	training := runlogtest.Cluster()
	training.Nodes, training.GPUs, training.EpochSeconds, training.SlowNode, training.ShrinkNode,
		training.DeadNode = 2, 1, 100, -1, -1, -1
	return training
}

// TestGolden checks the run of eight nodes with the troubles of runlogtest.Cluster.
func TestGolden(t *testing.T) {
	run := read(t, runlogtest.Cluster().Text())
	var out bytes.Buffer
	fmt.Fprintf(&out, "data %s, ranks %d, jobs %d, ended %v, events %d, broken %d, begin %v, "+
		"seconds %.0f, bins %d of %g s\n", run.Data, run.Ranks, run.Jobs,
		run.Ended, run.Events, run.Broken, run.Begin, run.Seconds, len(run.Timeline.Bins),
		run.Timeline.BinSeconds)
	for _, m := range run.Marks {
		fmt.Fprintf(&out, "mark %+v\n", m)
	}
	w := tabwriter.NewWriter(&out, 0, 0, 1, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "epoch\tdraws\tlocal\tremote\tstorage\tfallback\tstall\tseconds\t")
	for _, e := range run.Epochs {
		s := &e.Sums
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\t\n", e.Epoch, e.Draws(),
			s[stats.HitsLocal], s[stats.HitsRemote], s[stats.StorageReads], s[stats.FallbackReads],
			s[stats.StallSeconds], s[stats.TrainSeconds])
	}
	fmt.Fprintln(w, "node\tdraws\thits\tpeer bytes\tread "+
		"bytes\tstall\ttrained\tlatency\tutilisation\tGPU idle\twaited\tslab min\trestarts\t")
	for i := range run.Nodes {
		n := &run.Nodes[i]
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t%.0f\t%.5f\t%.4f\t%.1f\t%.1f\t%.0f\t%d\t\n",
			n.Rank, n.Sums.Draws(), n.Sums.Hits(), n.Sums[stats.PeerBytes],
			n.Sums[stats.ReadBytes], n.Sums[stats.StallSeconds], n.Sums[stats.TrainSeconds],
			n.Sums.Share(stats.ReadSeconds, stats.ReadCount), n.Levels[Utilisation].Mean(),
			n.Sums[stats.GPUIdle], n.Sums[stats.GPUWaited], n.Levels[SlabBytes].Min, n.Restarts)
	}
	fmt.Fprintln(w, "from second\tdraws\thits\tfallback\tstall share\tthe worst\tfree "+
		"min\tutilisation\t")
	slices := run.Timeline
	for len(slices.Bins) > 12 {
		slices.widen()
	}
	for i := range slices.Bins {
		b := &slices.Bins[i]
		fmt.Fprintf(
			w,
			"%g\t%.0f\t%.0f\t%.0f\t%.4f\t%.4f\t%.0f\t%.4f\t\n",
			float64(i)*slices.BinSeconds,
			b.Draws(),
			b.Hits(),
			b.Sums[stats.FallbackReads],
			b.Share(stats.StallSeconds, stats.TrainSeconds),
			b.Levels[StallShare].Max,
			b.Levels[FreeBytes].Min,
			b.Levels[Utilisation].Mean(),
		)
	}
	fmt.Fprintln(w, "importance\tsamples\t5 %\tmedian\t95 %\t")
	for _, d := range run.Importance {
		fmt.Fprintf(w, "%d\t%.0f\t%.4f\t%.4f\t%.4f\t\n", d.Epoch, d.Samples, d.Quantiles[0],
			d.Quantiles[2], d.Quantiles[4])
	}
	w.Flush()
	const path = "testdata/cluster.golden"
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("the run has changed (see it with -update and git diff):\n%s", out.String())
	}
}

// TestSumsAgree compares three ways to the same sums: epochs, nodes and the timeline.
func TestSumsAgree(t *testing.T) {
	run := read(t, runlogtest.Cluster().Text())
	epochs := 0.0
	for _, e := range run.Epochs {
		epochs += e.Draws()
	}
	nodes, bins := run.Totals(), stats.Sums{}
	for i := range run.Timeline.Bins {
		bins.Add(run.Timeline.Bins[i].Sums)
	}
	for q := range nodes {
		if math.Abs(nodes[q]-bins[q]) > 1e-6*nodes[q] {
			t.Errorf("quantity %d: nodes %v, timeline %v", q, nodes[q], bins[q])
		}
	}
	if nodes.Draws() != epochs {
		t.Errorf("nodes drew %v, epochs %v", nodes.Draws(), epochs)
	}
}

func TestBrokenLines(t *testing.T) {
	whole := small().Text()
	lines := strings.SplitAfter(strings.TrimSpace(whole), "\n")
	want := read(t, whole)
	half := lines[3][:len(lines[3])/2]
	for name, log := range map[string]string{
		"half a line at the end":    whole + half,
		"half a line before a line": strings.Join(lines[:5], "") + half + strings.Join(lines[5:], ""),
		"half a line and its newline": strings.Join(lines[:5], "") + half + "\n" +
			strings.Join(lines[5:], ""),
		"a line that never ends": strings.Join(lines[:5], "") + strings.Repeat("x", 3*maxLineBytes) +
			"\n" + strings.Join(lines[5:], ""),
		"no JSON": whole + "\nmpirun has lost contact\n",
		"negative counts": whole + "\n" +
			`{"event":"epoch","epoch":1,"draws":10,"hits_local":-1}`,
		"a number that is too large": whole + "\n" +
			`{"event":"node","time":"2026-03-14T09:27:03Z","rank":0,"seconds":1e300}`,
		"no time": whole + "\n" + `{"event":"node","rank":0,"seconds":1}`,
		"edges that do not fit": whole + "\n" +
			`{"event":"importance","epoch":7,"edges":[0,1],"counts":[1,2]}`,
		"an array": whole + "\n[]",
	} {
		got := read(t, log)
		if got.Broken != 1 || got.Events != want.Events || got.Totals() != want.Totals() ||
			len(got.Epochs) != len(want.Epochs) {
			t.Errorf("%s: %d broken, %d events of %d, %d epochs", name, got.Broken, got.Events, want.Events,
				len(got.Epochs))
		}
	}
	if got := read(t, "\n\n"+whole+"\r\n  \n"); got.Broken != 0 || got.Events != want.Events {
		t.Errorf("empty lines: %d broken, %d events of %d", got.Broken, got.Events, want.Events)
	}
}

// TestTrainingsInOneLog appends to a log: another training hides the one before, a requeued job
// continues it.
func TestTrainingsInOneLog(t *testing.T) {
	first := small()
	second := first
	second.Seed, second.Nodes = 2, 3
	one, two := first.Text(), second.Text()
	alone := read(t, two)

	again := read(t, one+two)
	if again.Earlier != 1 || again.Ranks != 3 || again.Totals() != alone.Totals() ||
		len(again.Importance) != len(alone.Importance) || again.Jobs != 1 {
		t.Errorf("after a whole training: earlier %d, ranks %d, jobs %d, importance %d", again.Earlier,
			again.Ranks, again.Jobs, len(again.Importance))
	}
	files := read(t, one, two)
	if files.Earlier != 1 || files.Totals() != alone.Totals() {
		t.Errorf("two files of two trainings: earlier %d", files.Earlier)
	}
	cut := one[:strings.LastIndex(strings.TrimSpace(one), "\n")+1]
	if killed := read(t, cut+two); killed.Earlier != 1 || killed.Totals() != alone.Totals() ||
		!killed.Ended {
		t.Errorf("after one that was killed: earlier %d, ended %v", killed.Earlier, killed.Ended)
	}
}

// TestRequeue ends a job in an epoch; the next continues in it, hours later.
func TestRequeue(t *testing.T) {
	epoch := func(n, draws int) string {
		return fmt.Sprintf(
			`{"event":"epoch","data":"d","epoch":%d,"draws":%d,"hits_local":%d,"seconds":10}`+"\n", n, draws,
			draws)
	}
	node := func(time string, seconds, epoch, hits int) string {
		return fmt.Sprintf(
			`{"event":"node","time":"2026-03-14T%sZ","rank":0,"seconds":%d,"epoch":%d,"hits_local":%d,"train_seconds":%d}`+"\n",
			time,
			seconds,
			epoch,
			hits,
			seconds,
		)
	}
	scores := func(epoch int) string {
		return fmt.Sprintf(
			`{"event":"importance","data":"d","epoch":%d,"edges":[0,1,2],"counts":[1,1]}`+"\n", epoch)
	}
	end := `{"event":"summary","data":"d","ranks":1,"wall_seconds":30}` + "\n"
	job1 := scores(0) + node("10:00:10", 10, 0, 100) + scores(1) + epoch(0, 100) +
		node("10:00:20", 20, 1, 150) + scores(2) + epoch(1, 50) + end
	job2 := node("14:00:05", 5, -1, 0) + scores(1) + node("14:00:10", 10, 1, 50) + epoch(1, 50) +
		scores(2) + node("14:00:20", 20, 2, 150) + epoch(2, 100) + end
	for name, run := range map[string]*Run{
		"one file":  read(t, job1+job2),
		"two files": read(t, job1, job2),
	} {
		if run.Jobs != 2 || run.Earlier != 0 || len(run.Epochs) != 3 ||
			run.Epochs[1].Sums != (stats.Sums{stats.HitsLocal: 100, stats.TrainSeconds: 20}) {
			t.Errorf("%s: jobs %d, earlier %d, epochs %+v", name, run.Jobs, run.Earlier, run.Epochs)
		}
		if all := run.Totals(); all[stats.HitsLocal] != 300 || len(run.Restarts()) != 0 ||
			run.Nodes[0].Restarts != 0 {
			t.Errorf("%s: hits %v, restarts %v", name, all[stats.HitsLocal], run.Restarts())
		}
		pause := run.Marks[len(run.Marks)-2]
		if run.Seconds != 40 || pause.Kind != Paused || pause.At != 20 || pause.Seconds != 4*3600-20 {
			t.Errorf("%s: %v s, marks %+v", name, run.Seconds, run.Marks)
		}
		if len(run.Importance) != 3 || run.Wall != 60 || !run.Ended {
			t.Errorf("%s: importance %+v, wall %v, ended %v", name, run.Importance, run.Wall, run.Ended)
		}
	}
}

// TestJobsOfOneEpoch adds up three jobs in an epoch beyond 0; in epoch 0 another job is another
// training.
func TestJobsOfOneEpoch(t *testing.T) {
	job := func(epoch, draws int) string {
		return fmt.Sprintf(
			`{"event":"epoch","epoch":%d,"draws":%d,"hits_local":%d}`+"\n"+`{"event":"summary","ranks":1}`+"\n",
			epoch,
			draws,
			draws,
		)
	}
	run := read(t, job(4, 10)+job(4, 20)+job(4, 30))
	if len(run.Epochs) != 1 || run.Epochs[0].Draws() != 60 ||
		run.Jobs != 3 || run.Earlier != 0 {
		t.Errorf("in epoch 4: %+v, jobs %d, earlier %d", run.Epochs, run.Jobs, run.Earlier)
	}
	run = read(t, job(0, 10)+job(0, 20)+job(0, 30))
	if len(run.Epochs) != 1 || run.Epochs[0].Draws() != 30 || run.Jobs != 1 || run.Earlier != 2 {
		t.Errorf("in epoch 0: %+v, jobs %d, earlier %d", run.Epochs, run.Jobs, run.Earlier)
	}
}

// TestEpochTwice reads the log of a cache that was restarted: trainers report the epoch again, with
// draws that were missing.
func TestEpochTwice(t *testing.T) {
	run := read(t, `{"event":"epoch","data":"d","epoch":0,"draws":10,"hits_local":10}
{"event":"pass","data":"test","epoch":0,"draws":5,"storage_reads":5}
{"event":"epoch","data":"d","epoch":0,"draws":100,"hits_local":100}
{"event":"something new","x":1}
`)
	if len(run.Epochs) != 1 || run.Epochs[0].Draws() != 100 || len(run.Passes) != 1 ||
		run.Unknown != 1 || run.Ended || run.Data != "d" {
		t.Errorf("%+v", run)
	}
}

// TestRestartOfAll reads a log with what usually happens when a rank dies: all ranks restart. Rank
// 2 begins empty, the others keep most of what they had.
func TestRestartOfAll(t *testing.T) {
	var log strings.Builder
	for second := 10; second <= 100; second += 10 {
		since, had := second, 0
		if second > 50 {
			since -= 45
			had = 100
		}
		for rank := range 4 {
			of := had
			if rank == 2 {
				of = 0
			}
			fmt.Fprintf(
				&log,
				`{"event":"node","time":"2026-03-14T10:%02d:%02dZ","rank":%d,"seconds":%d,"epoch":3,"hits_local":%d,"kept":%d,"kept_of":%d}`+"\n",
				second/60,
				second%60,
				rank,
				since,
				since,
				of*99/100,
				of,
			)
		}
	}
	run := read(t, log.String())
	restarts := run.Restarts()
	if len(restarts) != 1 || restarts[0] != (Mark{
		Kind: Restarted, At: 45, Epoch: 3, Rank: 0, Nodes: 4, Warm: 3, Kept: 297, KeptOf: 300,
	}) {
		t.Errorf("restarts %+v", restarts)
	}
	if all := run.Totals(); all[stats.HitsLocal] != 4*(50+55) {
		t.Errorf("hits %v", all[stats.HitsLocal])
	}
}

// TestRoundedSums distinguishes sums that fall by rounding from those of a restarted rank.
func TestRoundedSums(t *testing.T) {
	node := func(second int, stall float64) string {
		return fmt.Sprintf(
			`{"event":"node","time":"2026-03-14T10:00:%02dZ","rank":0,"seconds":%d,"epoch":1,"stall_seconds":%.17g}`+"\n",
			second,
			second,
			stall,
		)
	}
	stall := 22.222918999999997
	run := read(t, node(10, stall)+node(20, math.Nextafter(stall, 0))+node(30, stall))
	if all := run.Totals(); len(run.Restarts()) != 0 ||
		math.Abs(all[stats.StallSeconds]-stall) > 1e-6 {
		t.Errorf("%v s, restarts %+v", all[stats.StallSeconds], run.Restarts())
	}
	run = read(t, node(10, stall)+node(20, 1e-3)+node(30, 2e-3))
	if all := run.Totals(); len(run.Restarts()) != 1 ||
		math.Abs(all[stats.StallSeconds]-stall-2e-3) > 1e-6 {
		t.Errorf("after a restart: %v s, restarts %+v", all[stats.StallSeconds], run.Restarts())
	}
}

func TestTimelineStaysSmall(t *testing.T) {
	var line Timeline
	var sums stats.Sums
	sums[stats.HitsLocal] = 7
	level := [levels]float64{FreeBytes: 0.5}
	spans := 0
	for second := 0.0; second < 1e6; second += 977 {
		line.cover(second, second+977, sums, &level)
		spans++
		if len(line.Bins) > maxBins {
			t.Fatalf("%d bins", len(line.Bins))
		}
	}
	all := 0.0
	for i := range line.Bins {
		all += line.Bins[i].Sums[stats.HitsLocal]
	}
	if math.Abs(all-7*float64(spans)) > 1e-6 || len(line.Bins) <= maxBins/2-1 {
		t.Errorf("%v of %v in %d bins of %v s", all, 7*spans, len(line.Bins), line.BinSeconds)
	}
	if free := line.Bins[0].Levels[FreeBytes].Mean(); math.Abs(free-0.5) > 1e-9 {
		t.Errorf("free %v", free)
	}
}

func TestDistribution(t *testing.T) {
	d := (&Importance{
		Epoch: 3, Edges: []float64{0, 1, 2, 4},
		Counts: []int64{50, 0, 50},
	}).distribution()
	want := [...]float64{0.1, 0.5, 1, 3, 3.8}
	for i, q := range d.Quantiles {
		if math.Abs(q-want[i]) > 1e-9 {
			t.Errorf("quantiles %v, want %v", d.Quantiles, want)
			break
		}
	}
	if d.Samples != 100 {
		t.Errorf("%+v", d)
	}
}

// FuzzRead checks that no log causes a panic, or a run with NaN.
func FuzzRead(f *testing.F) {
	training := small()
	training.Nodes, training.Epochs, training.EverySeconds = 1, 2, 60
	log := training.Text()
	f.Add([]byte(log))
	f.Add([]byte(log[:len(log)/2] + log))
	f.Add([]byte(
		`{"event":"node","time":"2026-03-14T09:27:03Z","rank":1048575,"seconds":1e10,"stall_seconds":1e10,"slab_bytes":9}` + "\n" +
			`{"event":"node","time":"2199-03-14T09:27:03Z","rank":0,"seconds":0}`,
	))
	f.Add([]byte(
		`{"event":"importance","epoch":1,"edges":[-1e30,1e30],"counts":[1000000000000000000]}`))
	f.Fuzz(func(t *testing.T, log []byte) {
		var b Builder
		broken, err := Read(bytes.NewReader(log), b.Add)
		if err != nil {
			t.Fatal(err)
		}
		b.AddBroken(broken)
		run := b.Run()
		if lines := int64(bytes.Count(log, []byte{'\n'})) + 1; run.Broken > lines || run.Events > lines {
			t.Errorf("%d broken and %d events in %d lines", run.Broken, run.Events, lines)
		}
		if len(run.Timeline.Bins) > maxBins || math.IsNaN(run.Seconds) || run.Seconds < 0 {
			t.Errorf("%d bins, %v s", len(run.Timeline.Bins), run.Seconds)
		}
		for q, sum := range run.Totals() {
			if math.IsNaN(sum) || math.IsInf(sum, 0) || sum < 0 {
				t.Errorf("quantity %d is %v", q, sum)
			}
		}
	})
}
