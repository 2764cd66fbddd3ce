package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rankpool/cmd/internal/program/programtest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"rankpool-lab": main})
}

// TestScripts runs testdata/script/*.txtar, each in a folder of its own.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"status": programtest.Status, "npy": writeNPY,
		},
		Setup: func(env *testscript.Env) error {
			traces, err := filepath.Abs("../../benchmarks/traces")
			env.Setenv("TRACES", traces)
			return err
		},
	})
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
