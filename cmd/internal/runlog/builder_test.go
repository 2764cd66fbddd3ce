package runlog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rankpool/mpicache/stats"
)

// A script is a log written by hand, with a data set "train" that is trained on and another, "val".
type script struct {
	strings.Builder
	second float64
}

func (s *script) line(format string, values ...any) { fmt.Fprintf(s, format+"\n", values...) }

func (s *script) begin(launch string) {
	s.line(
		`{"event":"begin","time":"2026-03-14T10:00:00Z","launch":%q,"ranks":3,"data":["train","val"]}`,
		launch)
}

// epoch writes an epoch of 100 draws of the first data set; pass writes one of 10 of the other.
func (s *script) epoch(n int) {
	s.line(`{"event":"epoch","data":"train","epoch":%d,"draws":100,"hits_local":100,"seconds":10}`, n)
}

func (s *script) pass(n int) {
	s.line(`{"event":"pass","data":"val","epoch":%d,"draws":10,"hits_local":10,"seconds":1}`, n)
}

// node writes a line of rank 0, which started some seconds ago, in an epoch of a data set.
func (s *script) node(data string, epoch int, seconds float64) {
	s.second++
	at := time.Date(2026, 3, 14, 10, 0, 0, 0, time.UTC).Add(time.Duration(s.second * 1e9))
	s.line(`{"event":"node","time":%q,"rank":0,"data":%q,"seconds":%g,"epoch":%d,"hits_local":%d}`,
		at.Format(time.RFC3339), data, seconds, epoch, int(seconds))
}

func (s *script) scores(n int) {
	s.line(`{"event":"importance","data":"train","epoch":%d,"edges":[0,1],"counts":[100]}`, n)
}

func (s *script) summary() {
	s.line(`{"event":"summary","data":"train","ranks":3,"wall_seconds":30}`)
}

// checkRun checks the numbers of epochs, passes, jobs and earlier trainings in a log.
func checkRun(t *testing.T, log *script, epochs, passes, jobs, earlier int) *Run {
	t.Helper()
	run := read(t, log.String())
	if len(run.Epochs) != epochs || len(run.Passes) != passes || run.Jobs != jobs ||
		run.Earlier != earlier || run.Data != "train" || run.Broken != 0 {
		t.Errorf("%d epochs, %d passes, %d jobs, %d earlier, data %s, %d broken; want %d, %d, %d, %d",
			len(run.Epochs), len(run.Passes), run.Jobs,
			run.Earlier, run.Data, run.Broken, epochs, passes, jobs, earlier)
	}
	for _, e := range run.Epochs {
		if e.Draws() != 100 {
			t.Errorf("epoch %d has %v draws", e.Epoch, e.Draws())
		}
	}
	return run
}

// newScripts returns a log with a begin, and one without.
func newScripts() []*script {
	begun := &script{}
	begun.begin("a")
	return []*script{begun, {}}
}

// TestPassesAreLate reads a log of a training that validates after every third epoch: a pass is
// logged when the next epoch begins, and has a number of its own.
func TestPassesAreLate(t *testing.T) {
	for _, log := range newScripts() {
		for e := range 30 {
			log.node("train", e, float64(e+1))
			if e > 0 {
				log.epoch(e - 1)
			}
			if e%3 == 0 && e > 3 {
				log.pass(e/3 - 2)
			}
		}
		log.epoch(29)
		log.pass(8)
		log.summary()
		if run := checkRun(t, log, 30, 9, 1, 0); run.Totals()[stats.HitsLocal] != 30 {
			t.Errorf("%v hits", run.Totals()[stats.HitsLocal])
		}
	}
}

// TestShortEpochs reads a log whose epochs are shorter than the delay of its lines.
func TestShortEpochs(t *testing.T) {
	for _, log := range newScripts() {
		for e := range 60 {
			log.scores(e)
			log.node("train", max(0, e-6), float64(e+1))
			if e >= 4 {
				log.epoch(e - 4)
			}
			log.node("train", e, float64(e+1))
		}
		for e := 56; e < 60; e++ {
			log.epoch(e)
		}
		log.node("train", 57, 61)
		log.summary()
		if run := checkRun(t, log, 60, 0, 1, 0); run.Newest != 59 || len(run.Restarts()) != 0 ||
			len(run.Importance) != 60 {
			t.Errorf("newest %d, restarts %v, %d importance", run.Newest, run.Restarts(),
				len(run.Importance))
		}
	}
}

// TestRequeuedPasses continues in epoch 4 of a job that was killed or ended. Passes begin at 0
// again, one of them before training.
func TestRequeuedPasses(t *testing.T) {
	for _, killed := range []bool{true, false} {
		var log script
		log.begin("a")
		for e := range 4 {
			log.node("train", e, float64(e+1))
			log.epoch(e)
			log.pass(e)
		}
		if !killed {
			log.summary()
		}
		log.begin("b")
		log.scores(4)
		log.node("", -1, 1)
		log.node("val", 0, 2)
		log.pass(0)
		log.node("train", 4, 3)
		log.epoch(4)
		log.pass(1)
		run := checkRun(t, &log, 5, 4, 2, 0)
		if run.Ended || run.Passes[0].Draws() != 20 || run.Totals()[stats.HitsLocal] != 4+3 ||
			len(run.Restarts()) != 0 || len(run.Importance) != 1 {
			t.Errorf("ended %v, passes %+v, %v hits, restarts %v", run.Ended, run.Passes,
				run.Totals()[stats.HitsLocal], run.Restarts())
		}
	}
}

// TestLaunches appends a training to one that was killed.
func TestLaunches(t *testing.T) {
	var log script
	log.line(`{"event":"begin","launch":"","ranks":3,"data":["train"]}`)
	if run := read(t, log.String()); run.Broken != 1 {
		t.Errorf("a begin without a name: %d broken", run.Broken)
	}
	log.Reset()
	log.begin("none: it told nothing")
	log.begin("a")
	log.scores(7)
	log.node("train", 7, 1)
	log.epoch(7)
	log.begin("told only what it planned")
	log.scores(8)
	log.begin("b")
	log.scores(0)
	log.pass(0)
	log.node("val", 9, 1)
	if run := read(t, log.String()); run.Newest != 7 || run.Earlier != 0 || len(run.Epochs) != 1 ||
		len(run.Passes) != 0 {
		t.Errorf("before the first epoch: newest %d, earlier %d, epochs %v, passes %v", run.Newest,
			run.Earlier, run.Epochs, run.Passes)
	}
	log.node("train", 0, 2)
	log.epoch(0)
	log.epoch(1)
	run := checkRun(t, &log, 2, 1, 1, 1)
	if run.Ranks != 3 || run.Newest != 1 || run.Totals()[stats.HitsLocal] != 2 || len(run.Marks) != 1 {
		t.Errorf(
			"ranks %d, newest %d, %v hits, marks %v",
			run.Ranks,
			run.Newest,
			run.Totals()[stats.HitsLocal],
			run.Marks,
		)
	}
	if len(run.Importance) != 1 || run.Importance[0].Epoch != 0 {
		t.Errorf("importance %+v", run.Importance)
	}
}

// TestFirstEpochOfAJob checks which jobs continue the training of an earlier one.
func TestFirstEpochOfAJob(t *testing.T) {
	for first, want := range map[int]struct{ epochs, earlier int }{
		0: {1, 1}, 2: {1, 1}, 4: {2, 0}, 5: {2, 0}, 9: {2, 0},
	} {
		var log script
		log.begin("a")
		log.node("train", 4, 1)
		log.epoch(3)
		log.begin("b")
		log.epoch(first)
		checkRun(t, &log, want.epochs, 0, 2-want.earlier, want.earlier)
	}
}

// TestWhatIsTrained checks which data set is trained on, by the begin or else by the epochs.
func TestWhatIsTrained(t *testing.T) {
	var log script
	log.begin("a")
	log.node("val", 6, 1)
	if run := read(t, log.String()); run.Ranks != 3 || run.Data != "train" || run.Newest != -1 {
		t.Errorf("before training: ranks %d, data %s, newest %d", run.Ranks, run.Data, run.Newest)
	}
	log.epoch(0)
	log.line(`{"event":"begin","launch":"b","ranks":1,"data":["other"]}`)
	log.node("other", 0, 1)
	if run := read(t, log.String()); run.Data != "other" || run.Ranks != 1 || run.Earlier != 1 ||
		len(run.Epochs) != 0 {
		t.Errorf("another data set: ranks %d, data %s, earlier %d", run.Ranks, run.Data, run.Earlier)
	}
	log.Reset()
	log.epoch(5)
	log.summary()
	log.node("val", 0, 1)
	if run := checkRun(t, &log, 1, 0, 1, 0); run.Newest != 5 || !run.Ended {
		t.Errorf("without a begin: newest %d, ended %v", run.Newest, run.Ended)
	}
}

// TestSameLaunch reads the log of a cache that was restarted during training: trainers resend their
// counts.
func TestSameLaunch(t *testing.T) {
	var log script
	log.begin("a")
	log.node("train", 0, 5)
	log.epoch(0)
	log.node("train", 3, 6)
	log.begin("a")
	log.node("", -1, 0.5)
	log.epoch(0)
	log.epoch(2)
	log.node("train", 3, 2)
	log.summary()
	run := checkRun(t, &log, 2, 0, 1, 0)
	if restarts := run.Restarts(); len(restarts) != 1 || restarts[0].Epoch != 3 ||
		run.Totals()[stats.HitsLocal] != 6+2 || !run.Ended {
		t.Errorf("restarts %v, %v hits", restarts, run.Totals()[stats.HitsLocal])
	}
}

// TestRestartBeforeTheFirstLine reads the log of ranks that restarted before they had written a
// line.
func TestRestartBeforeTheFirstLine(t *testing.T) {
	var log script
	log.begin("a")
	log.begin("a")
	log.epoch(0)
	log.node("train", 1, 0.5)
	log.node("train", 1, 1.5)
	run := checkRun(t, &log, 1, 0, 1, 0)
	if restarts := run.Restarts(); len(restarts) != 1 || restarts[0].Epoch != -1 ||
		restarts[0].Nodes != 1 || restarts[0].At != 0.5 || run.Nodes[0].Restarts != 1 {
		t.Errorf("restarts %+v", restarts)
	}
}

// TestTrainingsWithJobNames checks that the epochs of trainings with job names are separate from
// those of the training without, and are added up over jobs of Slurm.
func TestTrainingsWithJobNames(t *testing.T) {
	var log script
	job := func(name string, epoch int) {
		log.line(`{"event":"job","data":"train","job":%q,"epoch":%d,"draws":50,"storage_reads":50}`,
			name, epoch)
	}
	log.begin("first")
	job("old", 0)
	log.node("train", 0, 1)
	log.summary()
	log.begin("a")
	log.node("train", 0, 1)
	job("b", 0)
	job("a", 1)
	job("a", 0)
	log.epoch(0)
	log.summary()
	log.begin("requeued")
	job("a", 1)
	log.node("train", 1, 1)
	log.epoch(1)
	run := checkRun(t, &log, 2, 0, 2, 1)
	var got []string
	for _, e := range run.Trainings {
		got = append(got, fmt.Sprintf("%s %d: %v", e.Job, e.Epoch, e.Draws()))
	}
	if strings.Join(got, ", ") != "a 0: 50, a 1: 100, b 0: 50" {
		t.Errorf("%q", got)
	}
}
