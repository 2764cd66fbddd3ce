package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Checks returns all checks, in the order in which the list shows them. The slice is the caller's.
func Checks() []Check {
	return []Check{
		{Name: "mpi", About: "MPI library, why that one, and the thread level that it gives", Scope: EachNode, find: checkMPI},
		{Name: "launcher", About: "who started the ranks, and whether MPI sees as many", Scope: Once, find: checkLauncher},
		{Name: "ranks", About: "one rank a node, on all nodes of the job", Scope: Between},
		{Name: "ping", About: "round trip of a small message between ranks", Scope: Between},
		{Name: "bandwidth", About: "rate of large messages between ranks", Scope: Between},
		{Name: "clock", About: "difference of the nodes' clocks", Scope: Between},
		{Name: "versions", About: "the same rankpool, MPI, Python and PyTorch on all nodes", Scope: Between},

		{Name: "slurm", About: "version of Slurm, the job, and how long it has left", Scope: Once, find: checkSlurm},
		{Name: "srun-mpi", About: "srun's plugin for this MPI library", Scope: Once, find: checkSrunMPI},
		{Name: "kill-wait", About: "seconds between SIGTERM and SIGKILL at the job's end", Scope: Once, find: checkKillWait},
		{Name: "variables", About: "variables that make srun, MPI or Go slow, or steps wait", Scope: EachNode, find: checkVariables},
		{Name: "signals", About: "signals that this process was started to ignore", Scope: EachNode, find: checkSignals},

		{Name: "kernel", About: "calls of the kernel that the shared memory needs", Scope: EachNode, find: checkKernel},
		{Name: "cma", About: "whether ranks of one node may read each other's memory", Scope: EachNode, find: checkCMA},
		{Name: "cpus", About: "CPUs that this process may use", Scope: EachNode, find: checkCPUs},
		{Name: "memory", About: "memory that is left: control groups and machine", Scope: EachNode, find: checkMemory},
		{Name: "huge-pages", About: "huge pages for shared memory", Scope: EachNode, find: checkHugePages},
		{Name: "memlock", About: "limit on locked memory, which RDMA needs", Scope: EachNode, find: checkMemlock},
		{Name: "shm", About: "size of /dev/shm, which DataLoader workers need", Scope: EachNode, find: checkShm},
		{Name: "open-files", About: "limit on open files", Scope: EachNode, find: checkOpenFiles},
		{Name: "runtime", About: "folder of sessions, and the length of its sockets' paths", Scope: EachNode, find: checkRuntime},
		{Name: "scratch", About: "node-local folder: space, extended attributes", Scope: EachNode, find: checkScratch},

		{Name: "data", About: "the data can be read, and its file system", Scope: EachNode, Data: true, find: checkData},
		{Name: "index", About: "a manifest of the data, so that no start scans it", Scope: EachNode, Data: true, find: checkIndex},
		{Name: "layout", About: "stripes over storage targets; files that are only in the archive", Scope: Once, Data: true, find: checkLayout},
		{Name: "read", About: "time to open and read a few files", Scope: EachNode, Data: true, find: checkRead},
		{Name: "xattr", About: "extended attributes of the data", Scope: EachNode, Data: true, find: checkXattr},

		{Name: "gpu", About: "GPUs, and NVIDIA's library for their statistics", Scope: EachNode, find: checkGPU},
		{
			Name: "python", About: "Python, PyTorch with torch.distributed, and rankpool's client", Scope: EachNode,
			patience: pythonPatience + usualPatience, find: checkPython,
		},
	}
}

// Select returns those of the checks that names lists, in the order of the list; all for no names. Checks of data are left out
// when there is none, unless names lists one: that is an error, as is a name that is no check's.
func Select(names []string, hasData bool) ([]Check, error) {
	all := Checks()
	for _, name := range names {
		at := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("doctor: %q is no check: choose from %s", name, strings.Join(checkNames(all), ", "))
		}
		if all[at].Data && !hasData {
			return nil, fmt.Errorf("doctor: the check %q looks at a data set: name one with --data", name)
		}
	}
	return slices.DeleteFunc(all, func(c Check) bool {
		return c.Data && !hasData || len(names) > 0 && !slices.Contains(names, c.Name)
	}), nil
}

func checkNames(checks []Check) []string {
	var names []string
	for _, c := range checks {
		names = append(names, c.Name)
	}
	return names
}
