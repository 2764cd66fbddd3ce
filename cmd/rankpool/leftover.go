package main

import (
	"fmt"
	"os"

	"rankpool/slurm"
)

// dropLeftovers corrects this process's environment, and so that of all it starts, where the job was submitted from inside a step of
// another one: it would be taken for a task of that step, and train alone.
func dropLeftovers() {
	change := slurm.Leftovers(os.Environ(), os.ReadFile)
	if len(change) == 0 {
		return
	}
	fmt.Fprintln(os.Stderr, "rankpool: this job was submitted from inside a step of another job, whose variables it got: they are ignored")
	for name, value := range change {
		if value == "" {
			_ = os.Unsetenv(name) // a name that is set can be unset
		} else {
			_ = os.Setenv(name, value)
		}
	}
}
