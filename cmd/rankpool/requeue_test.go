package main

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"rankpool/scheduler"
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
		{"JobState=SIGNALING Reason=None Restarts=0 PreemptTime=2026-11-20T15:25:12", false, false, 0, true},
		{"JobState=RUNNING Reason=None Restarts=0 PreemptTime=None", false, true, 0, false},                // somebody's SIGTERM
		{"JobState=RUNNING Reason=None Restarts=2 PreemptTime=2026-11-20T15:25:12", false, false, 2, true}, // steps got SIGTERM
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", false, true, 0, true},
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", true, true, 0, true},
		{"JobState=COMPLETING Reason=TimeLimit Restarts=0 PreemptTime=None", false, false, 0, false}, // training came to its end just before
		{"JobState=COMPLETING Reason=TimeLimit Restarts=1 PreemptTime=None", true, true, 0, false},   // it is being requeued
		{"JobState=COMPLETING Reason=None Restarts=1 EndTime=x", true, true, 0, false},
		{"JobState=COMPLETING Reason=None Restarts=0 PreemptTime=None", true, true, 0, false}, // it was cancelled
		{"JobState=COMPLETED Reason=None Restarts=0", true, true, 0, false},
		{"", true, true, 0, false},
	} {
		if got := parseJob(c.line).requeues(c.told, c.ending, c.restarts); got != c.want {
			t.Errorf("%q, told %v, ending %v: %v", c.line, c.told, c.ending, got)
		}
	}
}

func TestParseSignal(t *testing.T) {
	for text, want := range map[string]syscall.Signal{
		"USR1": syscall.SIGUSR1, "SIGUSR1": syscall.SIGUSR1, "sigusr2": syscall.SIGUSR2, "12": syscall.SIGUSR2,
		"": 0, "USR3": 0, "0": 0, "-1": 0, "99": 0,
	} {
		if got, err := parseSignal(text); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for requeue, want := range map[string]string{"TERM": "ends a run", "KILL": "must be USR1 or USR2", "tomorrow": "is no signal"} {
		o := runOptions{requeue: requeue}
		if err := o.checkRequeue(); err == nil || !strings.Contains(err.Error(), want) || exitCode(err) != exitUsage {
			t.Errorf("%s: %v", requeue, err)
		}
	}
}

// TestJobName checks that a task of an array is not taken for the array, whose number one of them has.
func TestJobName(t *testing.T) {
	if got := jobName(slurm.Job{JobID: "17", ArrayJobID: "17", ArrayTaskID: 4}); got != "17_4" {
		t.Error(got)
	}
	if got := jobName(slurm.Job{JobID: "17", ArrayTaskID: slurm.Absent}); got != "17" {
		t.Error(got)
	}
}

func TestAboutState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	check := func(want string) {
		t.Helper()
		if got := aboutState(path); !strings.Contains(got, want) {
			t.Errorf("%q does not say %q", got, want)
		}
	}
	check("is not there yet, so importance scores begin anew")
	if err := os.WriteFile(path, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("cannot be read")
	s := &scheduler.Snapshot{Epoch: 3, Final: 7}
	if err := os.WriteFile(path, s.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	check("epoch 3 after 7 batches")
}
