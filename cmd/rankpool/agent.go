package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"rankpool/cmd/rankpool/internal/launchers"
)

// isAgent reports whether a training command is torchrun. It starts the trainers, in new versions each in a session of its own, and dies
// of SIGUSR1 and SIGUSR2, which sbatch --signal sends to every process of a step; trainers that ignored them from the start may still
// have handlers.
//
// Source: PyTorch, issue 154849; torch/distributed/elastic/multiprocessing/api.py.
func isAgent(argv []string) bool { return launchers.Of(argv) == "torchrun" }

// signalDescendants sends s to the processes that a process has started, and to those that these have started.
func signalDescendants(pid int, s syscall.Signal) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // without /proc there are none
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		var child, parent int
		var state byte
		_, err = fmt.Sscanf(filepath.Base(filepath.Dir(path)), "%d", &child)
		after := text[bytes.LastIndexByte(text, ')')+1:] // a name may have brackets
		if _, bad := fmt.Sscanf(string(after), " %c %d", &state, &parent); bad == nil && err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	for next := children[pid]; len(next) > 0; next = next[1:] {
		_ = unix.Kill(next[0], s) // it may have ended
		next = append(next, children[next[0]]...)
	}
}
