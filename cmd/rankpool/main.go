// Command rankpool feeds deep-learning training on supercomputers: one MPI rank per node pools the
// nodes' memory into one cache, stages samples from storage ahead of their use, and serves the
// training processes.
package main

import (
	"fmt"
	"os"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/mpicache/transport"
	"rankpool/slurm"
)

func main() {
	dropLeftovers()
	code := program.Run(newRootCommand(), os.Args[1:], messages.End)
	transport.ExitMPI(code)
	os.Exit(code)
}

// dropLeftovers removes inherited step variables from this process's environment if the job was
// submitted from inside a step of another job. With them, training would believe that it is a task
// of that step, and run alone.
func dropLeftovers() {
	change := slurm.Leftovers(os.Environ(), os.ReadFile)
	if len(change) == 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "rankpool: this job was submitted from inside a step of another job, "+
		"whose variables it got: they are ignored")
	for name, value := range change {
		if value == "" {
			_ = os.Unsetenv(name) // cannot fail: the name is set
		} else {
			_ = os.Setenv(name, value)
		}
	}
}
