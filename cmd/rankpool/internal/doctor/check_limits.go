package doctor

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// The limits on open files: with few of them PyTorch's workers fail, since each batch in transit
// has a descriptor; a rank has 16 reads in flight by default, and a connection per worker.
//
// Source: PyTorch, Multiprocessing best practices, "Sharing strategies": file_descriptor.
const (
	fewFiles    = 1024
	tooFewFiles = 256
)

// checkLimits checks the limits of the processes that a rank and training start.
func checkLimits(env *Env) []Finding { return append(checkOpenFiles(env), checkMemlock(env)...) }

// checkOpenFiles asks a shell, since Go raises its own limit when it starts, but not its
// children's.
func checkOpenFiles(env *Env) []Finding {
	text, err := env.Machine.Output(commandWithin, nil, "sh", "-c", "ulimit -Sn; ulimit -Hn")
	limits := strings.Fields(text)
	if err != nil || len(limits) != 2 {
		return good("the limit on open files is not known")
	}
	soft, hard := fileLimit(limits[0]), fileLimit(limits[1])
	detail := fmt.Sprintf("a process may have %s open files, and raise that to %s", limits[0],
		limits[1])
	switch {
	case hard < tooFewFiles:
		return bad(detail, "have an administrator raise nofile in limits.conf, or LimitNOFILE of slurmd")
	case soft < fewFiles:
		return warning(detail, "run \"ulimit -n "+limits[1]+"\" before training: DataLoader "+
			"workers need many")
	}
	return good(detail)
}

// checkMemlock checks the limit on memory that RDMA pins.
func checkMemlock(env *Env) []Finding {
	limit, device := env.Machine.MemoryLock(), fabric(env)
	if limit == math.MaxUint64 || device == "" {
		return nil
	}
	return warning("locked memory is limited to {}, but "+device+" pins what it sends",
		"have an administrator set LimitMEMLOCK=infinity for slurmd (or memlock in limits.conf), and "+
			"PropagateResourceLimitsExcept=MEMLOCK in slurm.conf", bytesOf(limit))
}

// fileLimit parses the output of ulimit.
func fileLimit(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 1 << 40 // "unlimited"
	}
	return n
}
