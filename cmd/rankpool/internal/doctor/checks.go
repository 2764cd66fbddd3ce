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
	{"ranks", Between, "", nil, "one rank per node, on all nodes of the job"},
	{"ping", Between, "", nil, "round trip of a small message between ranks"},
	{"bandwidth", Between, "", nil, "bandwidth of large messages between ranks"},
	{"clock", Between, "", nil, "difference of the nodes' clocks"},
	{"versions", Between, "", nil, "the same rankpool, MPI, Python and PyTorch on all nodes"},

	{"slurm", Once, "", checkSlurm, "version of Slurm, the job, and its remaining time"},
	{"srun-mpi", Once, "", checkSrunMPI, "srun's plugin for this MPI library"},
	{"kill-wait", Once, "", checkKillWait, "seconds between SIGTERM and SIGKILL at the job's end"},
	{"variables", EachNode, "", checkVariables, "variables that slow srun, MPI or Go, or delay steps"},
	{"signals", EachNode, "", checkSignals, "signals that this process inherited as ignored"},

	{"kernel", EachNode, "", checkKernel, "system calls that shared memory needs"},
	{"cma", EachNode, "", checkCMA, "whether ranks of one node may read each other's memory"},
	{"cpus", EachNode, "", checkCPUs, "CPUs that this process may use"},
	{"memory", EachNode, "", checkMemory, "free memory, within control groups and machine"},
	{"huge-pages", EachNode, "", checkHugePages, "huge pages for shared memory"},
	{"memlock", EachNode, "", checkMemlock, "limit on locked memory, which RDMA needs"},
	{"shm", EachNode, "", checkShm, "size of /dev/shm, which DataLoader workers need"},
	{"open-files", EachNode, "", checkOpenFiles, "limit on open files"},
	{"runtime", EachNode, "", checkRuntime, "session folder, and the length of its socket paths"},
	{"scratch", EachNode, "", checkScratch, "node-local folder: space, extended attributes"},
	{"tier", EachNode, "tier", checkTier, "folder of --tier: local disk, owner and mode, room"},

	{"data", EachNode, "data", checkData, "whether the data can be read, and their file system"},
	{
		"index", EachNode, "data", checkIndex, "a manifest of the data, which saves a scan at each start",
	},
	{
		"layout", Once, "data", checkLayout,
		"stripes over storage targets; files that are only in the archive",
	},
	{"read", EachNode, "data", checkRead, "time to open and read a few files"},
	{"xattr", EachNode, "data", checkXattr, "extended attributes of the data"},

	{"gpu", EachNode, "", checkGPU, "GPUs, and NVIDIA's library for their statistics"},
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
