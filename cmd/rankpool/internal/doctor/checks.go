package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// checks are in the order in which the list shows them.
var checks = []Check{
	{"mpi", EachNode, "", checkMPI, "MPI library, why that one, and its thread level"},
	{"launcher", Once, "", checkLauncher, "launcher of the ranks, and whether MPI sees all of them"},
	{
		"ranks", Between, "", nil,
		"one rank per node, on all nodes; each reaches every other",
	},
	{"slurm", Once, "", checkSlurm, "Slurm, and srun's plugin for this MPI library"},
	{"variables", EachNode, "", checkVariables, "variables that slow srun or MPI, or delay steps"},

	{"cpus", EachNode, "", checkCPUs, "CPUs that this process may use"},
	{"memory", EachNode, "", checkMemory, "free memory, within control groups and machine"},
	{"shm", EachNode, "", checkShm, "size of /dev/shm, which DataLoader workers need"},
	{"limits", EachNode, "", checkLimits, "limits on open files, and on locked memory for RDMA"},
	{"runtime", EachNode, "", checkRuntime, "session folder, its socket paths, and who clears it"},
	{"tier", EachNode, "tier", checkTier, "folder of --tier: local disk, owner and mode, room"},

	{"data", EachNode, "data", checkData, "file system, manifest, and time to read a few files"},
	{
		"python", EachNode, "", checkPython,
		"Python, PyTorch with torch.distributed, and rankpool's client",
	},
}

// Checks returns all checks, in the order in which the list shows them.
func Checks() []Check { return slices.Clone(checks) }

// Select returns the checks with these names, in the order of the list; all if there are no names.
// Checks that need a flag other than those given are left out, but naming one is an error, as is an
// unknown name.
func Select(names []string, given ...string) ([]Check, error) {
	all := Checks()
	lacks := func(c Check) bool { return c.Needs != "" && !slices.Contains(given, c.Needs) }
	for _, name := range names {
		at := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("doctor: %q is not a check: choose from %s", name,
				strings.Join(checkNames(all), ", "))
		}
		if lacks(all[at]) {
			return nil, fmt.Errorf("doctor: the check %q needs --%s", name, all[at].Needs)
		}
	}
	return slices.DeleteFunc(all, func(c Check) bool {
		return lacks(c) || len(names) > 0 && !slices.Contains(names, c.Name)
	}), nil
}

func checkNames(checks []Check) []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	return names
}
