package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

// killVariable holds a victim in JSON: this test program then runs as that victim.
const killVariable = "COPIER_TEST_VICTIM"

// A victim is a staging run in a process of its own that kills itself, as by kill -9, before a call
// to its file system.
type victim struct {
	Src, Base string
	Ranks     int
	Mode      Mode
	Op        string
	Nth       int64
}

func TestMain(m *testing.M) {
	text := os.Getenv(killVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var v victim
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	var seen atomic.Int64
	target := newFaulty(func(op, _ string) error {
		if op == v.Op && seen.Add(1) == v.Nth {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return nil
	})
	_, errs := stageAll(v.Ranks, v.Src, v.Base,
		func(_ int, o *Options) { o.Mode, o.destFault = v.Mode, target.fault })
	if err := errors.Join(errs...); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// run runs the victim and reports whether it was killed.
func (v victim) run(t fatal) bool {
	text, err := json.Marshal(v)
	mustDo(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killVariable+"="+string(text))
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case err == nil:
		return false
	case errors.As(err, &ended) && ended.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL:
		return true
	}
	t.Fatalf("%v: %s", err, out)
	return false
}

// sums returns the output of "find | sha256sum" for a tree: every file's and link's name and
// checksum.
func sums(t fatal, root string) map[string]string {
	script := `find . -name '*.journal' -o -type f -print0 | xargs -0 -r sha256sum --zero; find . -name .rankpool-folder -o -type l -printf '%l  %P\0'`
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir = root
	out, err := cmd.Output()
	mustDo(t, err)
	tree := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if sum, path, found := strings.Cut(line, "  "); found {
			tree[filepath.Clean(path)] = sum
		}
	}
	return tree
}

// TestKilledAndRunAgain kills a staging run at a random call, and runs it again: an independent
// look finds the same trees, nothing that was there is copied again, and no temporary is left.
func TestKilledAndRunAgain(t *testing.T) {
	checkTrees(t, func(t *rapid.T, dir, src string) {
		v := victim{
			Src: src, Base: dir, Ranks: rapid.IntRange(1, 3).Draw(t, "ranks"), Mode: Replicate,
			Op: rapid.SampledFrom([]string{"create", "write", "rename", "append", "mkdir", "chmod"}).Draw(
				t, "call"),
			Nth: rapid.Int64Range(1, 20).Draw(t, "nth"),
		}
		killed := v.run(t)
		want, there := sums(t, src), int64(0)
		for rank := range v.Ranks {
			dest := filepath.Join(dir, fmt.Sprint(rank))
			if _, err := os.Stat(dest); err != nil {
				continue
			}
			for path, sum := range sums(t, dest) {
				switch {
				case want[path] == sum:
					there++
				case !isOurs(path):
					t.Fatalf("%q is there, half-written", path)
				}
			}
		}
		reports, errs := stageAll(v.Ranks, src, dir, func(_ int, o *Options) { o.Mode = Replicate })
		mustDo(t, errors.Join(errs...))
		r := reports[0]
		all := int64(v.Ranks) * r.TotalItems
		if r.Failed != 0 || r.Skipped != there || r.Copied != all-there || !killed && r.Copied != 0 {
			t.Fatalf("%d of %d items were there, killed: %v; then copied %d, skipped %d, failed %d",
				there, all, killed, r.Copied, r.Skipped, r.Failed)
		}
		for rank := range v.Ranks {
			dest := filepath.Join(dir, fmt.Sprint(rank))
			checkSame(t, want, sums(t, dest))
			checkSame(t, describe(t, src), describe(t, dest))
		}
	})
}

// TestKilledInPartition does the same once, with ranks that share a destination.
func TestKilledInPartition(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	v := victim{Src: src, Base: base, Ranks: 2, Mode: Partition, Op: "write", Nth: 4}
	if !v.run(t) {
		t.Fatal("it was not killed")
	}
	reports, errs := stageAll(2, src, base, nil)
	mustDo(t, errors.Join(errs...))
	if r := reports[0]; r.Skipped+r.Copied != 7 || r.Copied < 2 || r.Failed != 0 {
		t.Errorf("%+v", r)
	}
}
