package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// checkKernel checks the system calls that the slab of shared memory needs.
func checkKernel(env *Env) []Finding {
	release := "Linux " + firstLine(env, "/proc/sys/kernel/osrelease")
	calls := env.Machine.Calls()
	switch {
	case calls.Memfd != nil:
		return bad(fmt.Sprintf("%s: memfd_create fails: %v", release, calls.Memfd),
			"the shared memory needs Linux 3.17, and no filter of system calls (seccomp of a container) "+
				"that forbids it")
	case calls.Seal != nil:
		return bad(fmt.Sprintf("%s: a memfd cannot be sealed: %v", release, calls.Seal),
			"use another kernel: the shared memory needs it")
	}
	var without []string
	if calls.SealWrite != nil {
		without = append(without, "no seal against writing (Linux 5.1), so trainers are trusted not to "+
			"write to the cache")
	}
	if calls.Populate != nil {
		without = append(without, "no MADV_POPULATE_WRITE (Linux 5.14), so filling the memory at the "+
			"start is slower")
	}
	if len(without) > 0 {
		return good(release + ": works, with " + strings.Join(without, "; "))
	}
	return good(release + ": sealed shared memory works")
}

// checkCPUs checks the process's affinity, and how many threads Go uses.
func checkCPUs(env *Env) []Finding {
	allowed, online := allowedCPUs(env), listed(firstLine(env, "/sys/devices/system/cpu/online"))
	if allowed == 0 || online == 0 {
		return good("/proc does not show which CPUs may be used")
	}
	threads := env.Machine.Threads()
	const advice = "give the ranks CPUs: mpirun --bind-to none, or srun --cpus-per-task=N " +
		"--cpu-bind=none"
	switch {
	case allowed == 1 && online > 1:
		return warning("bound to one of {} CPUs, on which MPI's polling and the reads of "+
			"storage take turns", advice, count(online))
	case threads < min(2, allowed):
		return warning("{} of {} CPUs may be used, but the control group or GOMAXPROCS gives Go one at "+
			"a time", advice, count(allowed), count(online))
	}
	return good("{} of {} CPUs may be used", count(allowed), count(online))
}

func allowedCPUs(env *Env) int { return listed(statusField(env, "Cpus_allowed_list:")) }

// listed counts the members of a kernel's list of CPUs: 3 for "0-1,7". It is 0 for an invalid list.
func listed(list string) int {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		from, to, isRange := strings.Cut(part, "-")
		low, err := strconv.Atoi(from)
		high := low
		if isRange && err == nil {
			high, err = strconv.Atoi(to)
		}
		if err != nil || high < low {
			return 0
		}
		n += high - low + 1
	}
	return n
}

// firstLine returns the first line of a small file, "" if it cannot be read.
func firstLine(env *Env, path string) string {
	text, _ := env.Machine.ReadFile(path) // a missing file has no line
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
