package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/launchers"
)

// isAgent reports whether a training command is torchrun. torchrun starts the trainers, recent
// versions each in its own session, and dies of SIGUSR1 and SIGUSR2, which sbatch --signal sends to
// every process of a step. So join ignores both before it becomes torchrun; trainers inherit that,
// and can still install handlers.
//
// Source: PyTorch, issue 154849; torch/distributed/elastic/multiprocessing/api.py.
func isAgent(argv []string) bool { return launchers.Of(argv) == "torchrun" }

// signalDescendants sends s to the processes that a process has started, and to those that these
// have started.
func signalDescendants(pid int, s syscall.Signal) {
	for _, child := range descendants(pid) {
		_ = unix.Kill(child, s) // it may have ended
	}
}

// descendants returns the living processes that a process has started, and those that these have
// started.
func descendants(pid int) (all []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // empty without /proc
	for _, path := range stats {
		parent, lives := readStat(path)
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); lives && err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	all = children[pid]
	for at := 0; at < len(all); at++ {
		all = append(all, children[all[at]]...)
	}
	return all
}

// readStat reads the stat file of a process, and returns its parent and whether it lives.
func readStat(path string) (parent int, lives bool) {
	text, err := os.ReadFile(path)
	after := text[bytes.LastIndexByte(text, ')')+1:] // a name may have brackets
	var state byte
	_, bad := fmt.Sscanf(string(after), " %c %d", &state, &parent)
	return parent, err == nil && bad == nil && state != 'Z'
}

// hasChildren reports whether a process has a living child, or that cannot be determined.
//
// Source: Linux, proc(5), /proc/PID/task/TID/children.
func hasChildren(pid int) bool {
	// the pattern is well formed
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	known := false
	for _, list := range lists {
		text, err := os.ReadFile(list)
		known = known || err == nil
		for child := range bytes.FieldsSeq(text) {
			if _, lives := readStat("/proc/" + string(child) + "/stat"); lives {
				return true
			}
		}
	}
	return !known
}
