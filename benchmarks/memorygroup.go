package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memoryGroup is a control group whose processes share a memory limit: for their own memory, shared
// memory, and the pages of files that they were the first to read. It needs root.
type memoryGroup struct{ dir string }

// newMemoryGroup creates a group with a limit in bytes, in version 1 of control groups if the
// machine has the memory controller there, otherwise in version 2.
func newMemoryGroup(limit int64) (*memoryGroup, error) {
	root, file := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, file)); err != nil {
		root, file = "/sys/fs/cgroup", "memory.max"
		control := filepath.Join(root, "cgroup.subtree_control")
		if err := os.WriteFile(control, []byte("+memory"), 0); err != nil {
			return nil, fmt.Errorf("a control group for memory: %w", err)
		}
	}
	dir, err := os.MkdirTemp(root, "rankpool-bench-")
	if err != nil {
		return nil, fmt.Errorf("a control group for memory: %w", err)
	}
	g := &memoryGroup{dir}
	bytes := strconv.AppendInt(nil, limit, 10)
	if err := os.WriteFile(filepath.Join(dir, file), bytes, 0); err != nil {
		g.remove()
		return nil, fmt.Errorf("a control group for memory: %w", err)
	}
	return g, nil
}

// mostBytes returns the most bytes that the group had in use at a time.
func (g *memoryGroup) mostBytes() (int64, error) {
	for _, file := range []string{"memory.max_usage_in_bytes", "memory.peak"} { // version 1, 2
		text, err := os.ReadFile(filepath.Join(g.dir, file))
		if err == nil {
			return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		}
	}
	return 0, fmt.Errorf("the kernel does not say how much memory was used in %s: "+
		"version 2 of control groups does since Linux 5.19", g.dir)
}

// command returns a command that runs in the group.
func (g *memoryGroup) command(words []string) *exec.Cmd {
	enter := []string{"-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(g.dir, "cgroup.procs")}
	return exec.Command("sh", append(enter, words...)...)
}

// remove ends what still runs in the group, such as helpers of Python's multiprocessing, and
// removes it. A process that ended a moment ago may still be in it.
func (g *memoryGroup) remove() {
	var err error
	for range 100 {
		g.end()
		if err = os.Remove(g.dir); !errors.Is(err, syscall.EBUSY) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
	}
}

// end kills the processes in the group.
func (g *memoryGroup) end() {
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return // the removal reports why
	}
	for word := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}
