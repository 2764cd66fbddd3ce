package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// checks are in the order in which the list shows them.
var checks = []Check{
	{"mpi", EachNode, checkMPI, "MPI library, why that one, and its thread level"},
	{"launcher", Once, checkLauncher, "launcher of the ranks, and whether MPI sees all of them"},
	{"ranks", Between, nil, "each rank reaches every other"},
	{"slurm", Once, checkSlurm, "Slurm, and srun's plugin for this MPI library"},

	{"cpus", EachNode, checkCPUs, "CPUs that this process may use"},
	{"memory", EachNode, checkMemory, "free memory, within control groups and machine"},
	{"shm", EachNode, checkShm, "size of /dev/shm, which DataLoader workers need"},
	{"limits", EachNode, checkLimits, "limit on open files"},
	{"runtime", EachNode, checkRuntime, "session folder, its socket paths, and who clears it"},
	{"tier", EachNode, checkTier, "folder of --tier: local disk, owner and mode, room"},

	{"data", EachNode, checkData, "file system, manifest, and whether a few files can be read"},
	{"python", EachNode, checkPython, "Python, PyTorch, its GPUs, and rankpool's client"},
}

// Checks returns all checks, in the order in which the list shows them.
func Checks() []Check { return slices.Clone(checks) }

// Select returns the checks with these names, in the order of the list; all if there are no names.
func Select(names []string) ([]Check, error) {
	all := Checks()
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c Check) bool { return c.Name == name }) {
			return nil, fmt.Errorf("doctor: %q is not a check: choose from %s", name,
				strings.Join(checkNames(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(c Check) bool {
		return len(names) > 0 && !slices.Contains(names, c.Name)
	}), nil
}

func checkNames(checks []Check) []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	return names
}
