package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// The limits on open files: with few of them PyTorch's workers fail, since each batch in transit
// has a descriptor; a rank has 16 reads in flight by default, and a connection per worker.
//
// Source: PyTorch, Multiprocessing best practices, "Sharing strategies": file_descriptor.
const (
	fewOpen = 1024
	tooFew  = 256
)

// checkLimits checks the limit on open files of the processes that a rank and training start. It
// asks a shell, since Go raises its own limit when it starts, but not its children's.
func checkLimits(env *Env) []Finding {
	text, err := env.Machine.Output(commandWithin, nil, "sh", "-c", "ulimit -Sn; ulimit -Hn")
	limits := strings.Fields(text)
	if err != nil || len(limits) != 2 {
		return good("the limit on open files is not known")
	}
	soft, hard := fileLimit(limits[0]), fileLimit(limits[1])
	detail := fmt.Sprintf("a process may have %s open files, and raise that to %s", limits[0],
		limits[1])
	switch {
	case hard < tooFew:
		return bad(detail, "have an administrator raise nofile in limits.conf, or LimitNOFILE of slurmd")
	case soft < fewOpen:
		return warning(detail, "run \"ulimit -n "+limits[1]+"\" before training: DataLoader "+
			"workers need many")
	}
	return good(detail)
}

// checkCPUs checks the process's affinity, and how many threads Go uses.
func checkCPUs(env *Env) []Finding {
	allowed, threads := env.Machine.CPUs()
	const advice = "give the ranks CPUs: mpirun --bind-to none, or srun --cpus-per-task=N " +
		"--cpu-bind=none"
	switch {
	case allowed == 1:
		return warning("one CPU, on which MPI's polling and the reads of storage take turns", advice)
	case threads < 2:
		return warning(fmt.Sprintf("%d CPUs may be used, but the control group or GOMAXPROCS gives Go "+
			"one at a time", allowed), advice)
	}
	return good(fmt.Sprintf("CPUs that may be used: %d", allowed))
}

// fileLimit parses the output of ulimit.
func fileLimit(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 1 << 40 // "unlimited"
	}
	return n
}
