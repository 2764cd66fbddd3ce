package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// checks are in the order in which the list shows them.
var checks = []Check{
	{
		Name: "mpi", Scope: EachNode, find: checkMPI,
		About: "MPI library, why that one, and its thread level",
	},
	{
		Name: "launcher", Scope: Once, find: checkLauncher,
		About: "launcher of the ranks, and whether MPI sees all of them",
	},
	{Name: "ranks", Scope: Between, About: "one rank per node, on all nodes of the job"},
	{Name: "ping", Scope: Between, About: "round trip of a small message between ranks"},
	{Name: "bandwidth", Scope: Between, About: "bandwidth of large messages between ranks"},
	{Name: "clock", Scope: Between, About: "difference of the nodes' clocks"},
	{Name: "versions", Scope: Between, About: "the same rankpool, MPI, Python and PyTorch " +
		"on all nodes"},

	{
		Name: "slurm", Scope: Once, find: checkSlurm,
		About: "version of Slurm, the job, and its remaining time",
	},
	{Name: "srun-mpi", Scope: Once, find: checkSrunMPI, About: "srun's plugin for this MPI library"},
	{
		Name: "kill-wait", Scope: Once, find: checkKillWait,
		About: "seconds between SIGTERM and SIGKILL at the job's end",
	},
	{
		Name: "variables", Scope: EachNode, find: checkVariables,
		About: "variables that slow srun, MPI or Go, or delay steps",
	},
	{
		Name: "signals", Scope: EachNode, find: checkSignals,
		About: "signals that this process inherited as ignored",
	},

	{
		Name: "kernel", Scope: EachNode, find: checkKernel,
		About: "system calls that shared memory needs",
	},
	{
		Name: "cma", Scope: EachNode, find: checkCMA,
		About: "whether ranks of one node may read each other's memory",
	},
	{Name: "cpus", Scope: EachNode, find: checkCPUs, About: "CPUs that this process may use"},
	{
		Name: "memory", Scope: EachNode, find: checkMemory,
		About: "free memory, within control groups and machine",
	},
	{Name: "huge-pages", Scope: EachNode, find: checkHugePages, About: "huge pages for shared memory"},
	{
		Name: "memlock", Scope: EachNode, find: checkMemlock,
		About: "limit on locked memory, which RDMA needs",
	},
	{
		Name: "shm", Scope: EachNode, find: checkShm,
		About: "size of /dev/shm, which DataLoader workers need",
	},
	{Name: "open-files", Scope: EachNode, find: checkOpenFiles, About: "limit on open files"},
	{
		Name: "runtime", Scope: EachNode, find: checkRuntime,
		About: "session folder, and the length of its socket paths",
	},
	{
		Name: "scratch", Scope: EachNode, find: checkScratch,
		About: "node-local folder: space, extended attributes",
	},
	{
		Name: "tier", Scope: EachNode, Needs: "tier", find: checkTier,
		About: "folder of --tier: local disk, owner and mode, room",
	},

	{
		Name: "data", Scope: EachNode, Needs: "data", find: checkData,
		About: "whether the data can be read, and their file system",
	},
	{
		Name: "index", Scope: EachNode, Needs: "data", find: checkIndex,
		About: "a manifest of the data, which saves a scan at each start",
	},
	{
		Name: "layout", Scope: Once, Needs: "data", find: checkLayout,
		About: "stripes over storage targets; files that are only in the archive",
	},
	{
		Name: "read", Scope: EachNode, Needs: "data", find: checkRead,
		About: "time to open and read a few files",
	},
	{
		Name: "xattr", Scope: EachNode, Needs: "data", find: checkXattr,
		About: "extended attributes of the data",
	},

	{
		Name: "gpu", Scope: EachNode, find: checkGPU,
		About: "GPUs, and NVIDIA's library for their statistics",
	},
	{
		Name: "python", Scope: EachNode, find: checkPython, patience: pythonPatience + usualPatience,
		About: "Python, PyTorch with torch.distributed, and rankpool's client",
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
