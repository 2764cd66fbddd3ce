package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rankpool/cmd/internal/program/programtest"
	"rankpool/cmd/internal/version"
	"rankpool/mpicache/record"
	"rankpool/mpicache/transport/mpilib"
	"rankpool/scheduler"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rankpool": main, "fakeserve": fakeServe})
}

// TestScripts runs testdata/script/*.txtar, each in a folder of its own with a runtime folder of
// its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": programtest.Status, "empty": empty, "recording": writeRecording,
		},
		Setup: func(env *testscript.Env) error {
			// The path of a socket must stay short, so the runtime folder is not below the test's.
			//nolint:usetesting // t.TempDir is too long for a socket
			runtime, err := os.MkdirTemp("", "rp")
			if err != nil {
				return err
			}
			env.Defer(func() { _ = os.RemoveAll(runtime) })
			env.Setenv("RUNTIME", runtime)
			env.Setenv(mpilib.Variable, "/no/libmpi.so") // do not depend on the machine's MPI
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
	})
}

// empty is the script command "empty FOLDER".
func empty(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: empty FOLDER")
	}
	entries, err := os.ReadDir(args[0])
	ts.Check(err)
	if len(entries) > 0 {
		ts.Fatalf("%s is not empty: %v", args[0], entries)
	}
}

// writeRecording is the script command "recording FILE RANK RANKS SESSION [EVENT]". It records what
// a rank decides that requests an epoch from itself; with EVENT, it adds a command that no stager
// gives to that event.
func writeRecording(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: recording FILE RANK RANKS SESSION [EVENT]")
	}
	rank, err := strconv.Atoi(args[1])
	ts.Check(err)
	ranks, err := strconv.Atoi(args[2])
	ts.Check(err)
	wrong := 0
	if len(args) > 4 {
		wrong, err = strconv.Atoi(args[4])
		ts.Check(err)
	}
	r, err := record.Create(ts.MkAbs(args[0]),
		record.Begin{Version: version.Text, Session: args[3], Rank: rank, Ranks: ranks},
		slog.New(slog.DiscardHandler))
	ts.Check(err)
	setup := &record.Setup{
		Data: "train", Rank: rank, Ranks: ranks, World: []int32{int32(rank)}, Policy: "lru",
		CapacityBytes: 1000, WindowBytes: 1000,
		Sampler: scheduler.SamplerConfig{Name: "sequential", Samples: 20, BatchSize: 10, World: 1},
		Size:    func(scheduler.SampleID) int64 { return 100 },
	}
	plans, stager, err := setup.New()
	ts.Check(err)
	tape := r.Tape(0, setup)
	for i, e := range []scheduler.Event{
		scheduler.Planned{Plan: scheduler.NewPlan(plans, 0, nil)},
		scheduler.Requested{Ticket: 1},
		scheduler.Room{},
		scheduler.Fetched{ID: 1},
	} {
		commands := stager.Step(e)
		if i+1 == wrong {
			commands = append(commands, scheduler.Free{ID: 19})
		}
		tape.Step(e, commands)
	}
	ts.Check(r.Close())
}
