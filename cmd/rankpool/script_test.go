package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rankpool/cmd/internal/program/programtest"
	"rankpool/mpicache/transport/mpilib"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rankpool": func() {
		if len(os.Args) > 1 && os.Args[1] == "serve" && os.Getenv("FAKESERVE") != "" {
			fakeServe()
		}
		main()
	}})
}

// TestScripts runs testdata/script/*.txtar, each in a folder of its own with a runtime folder of
// its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": programtest.Status, "empty": empty,
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
