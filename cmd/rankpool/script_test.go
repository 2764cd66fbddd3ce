package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rankpool/cmd/rankpool/internal/version"
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
			"status": status, "empty": empty, "npy": writeNPY, "recording": writeRecording,
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
			traces, err := filepath.Abs("../../benchmarks/traces")
			if err != nil {
				return err
			}
			env.Setenv("TRACES", traces)
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			return nil
		},
	})
}

// status is the script command "status CODE PROGRAM ARG…": the program must end with that exit
// code.
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status CODE PROGRAM ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
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

// writeNPY is the script command "npy FILE TYPE SHAPE NUMBER…". TYPE is <f4, <f8, <i4 or <i8; SHAPE
// is as in NumPy, without brackets. If there are fewer numbers than the shape needs, they repeat.
func writeNPY(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: npy FILE TYPE SHAPE NUMBER…")
	}
	whole := 1
	for _, length := range bytes.FieldsFunc([]byte(args[2]),
		func(r rune) bool { return r == ',' || r == ' ' }) {
		n, err := strconv.Atoi(string(length))
		ts.Check(err)
		whole *= n
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }\n", args[1],
		args[2])
	file := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	file = append(file, header...)
	for i := range whole {
		x, err := strconv.ParseFloat(args[3+i%len(args[3:])], 64)
		ts.Check(err)
		number := map[string]any{
			"<f4": float32(x), "<f8": x, "<i4": int32(x),
			"<i8": int64(x),
		}[args[1]]
		file, err = binary.Append(file, binary.LittleEndian, number)
		ts.Check(err)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), file, 0o600))
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
