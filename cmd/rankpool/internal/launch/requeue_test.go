package launch

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet/outlettest"
	"rankpool/slurm"
)

func TestRequeues(t *testing.T) {
	for _, c := range []struct {
		line     string
		told     bool
		ending   bool
		restarts int
		want     bool
	}{
		{"JobState=RUNNING Reason=None Restarts=0 PreemptTime=None", false, false, 0, false},
		{"JobState=RUNNING Reason=None Restarts=0 PreemptTime=None", true, false, 0, true},
		{"JobState=SIGNALING Reason=None Restarts=0 PreemptTime=None", true, false, 0, true},
		{
			"JobState=SIGNALING Reason=None Restarts=0 PreemptTime=2026-11-20T15:25:12", false,
			false,
			0, true,
		},
		// somebody's SIGTERM
		{"JobState=RUNNING Reason=None Restarts=0 PreemptTime=None", false, true, 0, false},
		// steps got SIGTERM
		{
			"JobState=RUNNING Reason=None Restarts=2 PreemptTime=2026-11-20T15:25:12", false, false,
			2,
			true,
		},
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", false, true, 0, true},
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", true, true, 0, true},
		// training came to its end just before
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", false, false, 0, false},
		// it is being requeued
		{"JobState=COMPLETING Reason=TimeLimit Restarts=1 PreemptTime=None", true, true, 0, false},
		{"JobState=COMPLETING Reason=None Restarts=1 EndTime=x", true, true, 0, false},
		// it was cancelled
		{"JobState=COMPLETING Reason=None Restarts=0 PreemptTime=None", true, true, 0, false},
		{"JobState=COMPLETED Reason=None Restarts=0", true, true, 0, false},
		{"", true, true, 0, false},
	} {
		if got := parseJob(c.line).requeues(c.told, c.ending, c.restarts); got != c.want {
			t.Errorf("%q, told %v, ending %v: %v", c.line, c.told, c.ending, got)
		}
	}
}

// fakeScontrol puts a Slurm into $PATH that describes a running job and, when that is requeued,
// sends this process SIGUSR2 instead of ending it, and in the fourth restart ends scontrol as well,
// as Slurm does. The result reports whether the job was requeued.
func fakeScontrol(t *testing.T, signals chan os.Signal) (requeued func() bool) {
	t.Helper()
	folder := t.TempDir()
	script := "#!/bin/sh\ncase $1 in\nshow) echo JobState=RUNNING Reason=None " +
		"Restarts=$SLURM_RESTART_COUNT PreemptTime=None ;;\n" +
		"requeue) touch " + filepath.Join(folder, "requeued") + "; kill -USR2 $PPID\n" +
		"if [ $SLURM_RESTART_COUNT = 4 ]; then kill -TERM $$; fi ;;\nesac\n"
	if err := os.WriteFile(filepath.Join(folder, "scontrol"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	signal.Notify(signals, syscall.SIGUSR2)
	t.Cleanup(func() { signal.Stop(signals) })
	return func() bool {
		_, err := os.Stat(filepath.Join(folder, "requeued"))
		return err == nil
	}
}

// TestConclude checks what happens to a job whose time is over, by how its training ended.
func TestConclude(t *testing.T) {
	onward, missing := "is requeued, and will continue where training left off\n",
		": its checkpoint may be missing\n"
	training := func(code int) error { return &exit.StatusError{Code: code} }
	for _, c := range []struct {
		how      string
		err      error
		restarts int
		requeued bool
		says     string
	}{
		{"it wrote a checkpoint", nil, 0, true, onward},
		{"again", nil, 3, true, onward},
		{"Slurm ends scontrol as part of the job", nil, 4, true, onward},
		{
			"the checkpoint failed", training(1), 0, true,
			"is requeued, but training ended with code 1 after the signal" + missing,
		},
		{
			"again", training(1), 1, true,
			"is requeued, but training ended with code 1 after the signal" + missing,
		},
		{
			"it has none in its first life", training(138), 0, true,
			"training ended with code 138 after the signal" + missing,
		},
		{
			"it has none yet", training(138), 1, true,
			"training ended with code 138 after the signal" + missing,
		},
		{"it has none", training(138), 1, false, "job 7 is not requeued: training died of the signal"},
		{"it has none", training(140), 2, false, "job 7 is not requeued: training died of the signal"},
		{"others did not end in time", training(137), 1, true, "training ended with code 137"},
		{"it had not begun", exit.SignalError{Signal: syscall.SIGUSR1}, 1, true, onward},
	} {
		t.Run(c.how, func(t *testing.T) {
			t.Setenv("SLURM_RESTART_COUNT", strconv.Itoa(c.restarts))
			q := &requeue{
				signal: syscall.SIGUSR1,
				job:    slurm.Job{JobID: "7", RestartCount: c.restarts}, here: true, told: true,
			}
			q.begin = time.Now()
			if c.how != "it has none yet" {
				q.begin = q.begin.Add(-handlerWithin - time.Second)
			}
			q.signals = make(chan os.Signal, 4)
			requeued := fakeScontrol(t, q.signals)
			var err error
			text := outlettest.Stderr(t, func() { err = q.conclude(c.err) })
			if !errors.Is(err, c.err) || requeued() != c.requeued ||
				!strings.Contains(text, c.says) {
				t.Errorf("requeued: %v; %v; stderr %q", requeued(), err, text)
			}
		})
	}
}

func TestRequeueFlag(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"USR1": syscall.SIGUSR1, "SIGUSR1": syscall.SIGUSR1, "sigusr2": syscall.SIGUSR2, "": 0,
	} {
		o := Options{requeue: text}
		if err := o.checkRequeue(); err != nil || o.requeueOn != want {
			t.Errorf("%q: %v, %v", text, o.requeueOn, err)
		}
	}
	for _, text := range []string{"TERM", "KILL", "tomorrow", "12"} {
		o := Options{requeue: text}
		if err := o.checkRequeue(); err == nil || exit.Code(err) != exit.Misuse ||
			!strings.Contains(err.Error(), "must be USR1 or USR2") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestJobName checks that a task of an array is not mistaken for the array, whose number one of the
// tasks has.
func TestJobName(t *testing.T) {
	if got := jobName(slurm.Job{JobID: "17", ArrayJobID: "17", ArrayTaskID: 4}); got != "17_4" {
		t.Error(got)
	}
	if got := jobName(slurm.Job{JobID: "17", ArrayTaskID: slurm.Absent}); got != "17" {
		t.Error(got)
	}
}

func TestLostNodes(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	for _, c := range []struct{ has, want string }{
		{"n[1-3]", ""},
		{"n[1,3]", "the job has lost n2, "},
		{"n1", "the job has lost n[2-3], "},
		{"(null)", ""},
		{"", ""},
	} {
		script := "#!/bin/sh\necho 'JobState=RUNNING NodeList=" + c.has + "'\n"
		if err := os.WriteFile(filepath.Join(folder, "scontrol"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		got := lostNodes(slurm.Job{JobID: "7", NodeList: "n[1-3]"})
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%q are left: %q, want %q", c.has, got, c.want)
		}
	}
}
