package slurm

import (
	"cmp"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Memory is a limit on how much memory the processes of a job may use on this node, and what
// remains of it.
type Memory struct {
	LimitBytes int64 // LimitBytes is the limit, math.MaxInt64 for none.
	FreeBytes  int64 // FreeBytes is what remains until the limit, in [0, LimitBytes].
	// Limit names the limit, in words that follow a size: "the memory limit of control group /job_7".
	Limit string
}

// ReadMemory returns the limit of this process with the least memory left; see ReadMemoryLimits.
// Without any limit, LimitBytes and FreeBytes are math.MaxInt64. It reads a handful of small files,
// so calling it once a second is cheap.
func ReadMemory(readFile func(string) ([]byte, error), getenv func(string) string,
	usedBytes int64,
) Memory {
	limits := append([]Memory{{math.MaxInt64, math.MaxInt64, "no limit found"}},
		ReadMemoryLimits(readFile, getenv, usedBytes)...)
	return slices.MinFunc(limits,
		func(a, b Memory) int { return cmp.Compare(a.FreeBytes, b.FreeBytes) })
}

// ReadMemoryLimits returns all memory limits of this process: those of its control group and the
// groups above it, of Slurm's allocation (getenv), and of the machine. It reads files of /proc and
// /sys/fs/cgroup with readFile (os.ReadFile, or a test's).
//
// Free memory is what is not in use, plus file pages that can be dropped at once. Pages of shared
// memory (tmpfs, memfd) are in use: they count against the control group of the process that
// touched them first. The job's use of Slurm's allocation is that of its control group, or
// usedBytes, the caller's own figure, if that is larger or there is no such group.
//
// Source: Linux, admin-guide/cgroup-v2, "Memory Interface Files"; cgroup-v1/memory; sbatch(1),
// output environment variables.
func ReadMemoryLimits(readFile func(string) ([]byte, error), getenv func(string) string,
	usedBytes int64,
) []Memory {
	p := probe{readFile}
	limits, jobUsed := p.controlGroups(getenv("SLURM_JOB_ID"))
	if granted, name := slurmMemory(getenv); granted > 0 {
		limits = append(limits, memory(granted, max(usedBytes, jobUsed), name))
	}
	total, ok1 := p.field("/proc/meminfo", "MemTotal:")
	free, ok2 := p.field("/proc/meminfo", "MemAvailable:")
	if ok1 && ok2 && total < math.MaxInt64>>10 {
		limits = append(limits, memory(total<<10, (total-free)<<10, "the machine's available memory"))
	}
	return limits
}

func memory(limit, used int64, name string) Memory {
	return Memory{limit, min(limit, max(0, limit-used)), name}
}

// slurmMemory returns Slurm's allocation for the job, or the step, on this node, and the variable
// that it comes from; 0 if there is none. 0 MiB, from --mem=0, is all of the node.
func slurmMemory(getenv func(string) string) (bytes int64, name string) {
	for _, v := range []struct {
		name  string
		times func() int
	}{
		{"SLURM_MEM_PER_NODE", func() int { return 1 }},
		{"SLURM_MEM_PER_CPU", func() int { return Detect(getenv).cpusHere(getenv) }},
		{"SLURM_MEM_PER_GPU", func() int { return gpusOnNode(getenv) }},
	} {
		each, ok := Size(getenv(v.name))
		if !ok || each == 0 {
			continue
		}
		if n := int64(v.times()); n > 0 && each < math.MaxInt64/n {
			return each * n, v.name
		}
	}
	return 0, ""
}

// Size parses a size as sbatch does: a number of MiB, or with K, M, G or T of the binary unit.
//
// Source: SchedMD, sbatch(1), --mem.
func Size(text string) (bytes int64, ok bool) {
	unit := int64(1 << 20)
	digits := strings.TrimRight(strings.TrimSpace(text), "bB")
	if digits != "" {
		at := strings.IndexByte("KMGT", digits[len(digits)-1]&^0x20)
		if at >= 0 {
			unit, digits = 1<<(10*(at+1)), digits[:len(digits)-1]
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= math.MaxInt64/unit
}

// A probe reads the kernel's files.
type probe struct {
	readFile func(string) ([]byte, error)
}

// controlGroups returns the limits of the control groups of this process, and the memory in use by
// the job's group, 0 if there is none.
func (p probe) controlGroups(job string) (limits []Memory, jobUsed int64) {
	for line := range strings.Lines(p.text("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			limits, jobUsed = p.climb(limits, jobUsed, job, "/sys/fs/cgroup", parts[2], cgroupV2)
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			limits, jobUsed = p.climb(limits, jobUsed, job, "/sys/fs/cgroup/memory", parts[2], cgroupV1)
		}
	}
	return limits, jobUsed
}

// cgroupFiles are the files of a memory control group: its limits, its use, and the fields of
// memory.stat that count file pages and, of these, the pages that must be written back before they
// can be dropped.
type cgroupFiles struct {
	limits []string
	usage  string
	file   []string
	dirty  []string
}

// Version 2's memory.high does not end a job, but slows it to a crawl. Slurm sets both.
var (
	cgroupV2 = cgroupFiles{
		[]string{"memory.max", "memory.high"},
		"memory.current",
		[]string{"inactive_file", "active_file"},
		[]string{"file_dirty", "file_writeback"},
	}
	cgroupV1 = cgroupFiles{
		[]string{"memory.limit_in_bytes"},
		"memory.usage_in_bytes",
		[]string{"total_inactive_file", "total_active_file"},
		[]string{"total_dirty", "total_writeback"},
	}
)

// unlimited is the smallest number that means no limit in version 1, which writes the largest
// multiple of the page size.
const unlimited = 1 << 62

// climb appends the limits of the control group and all its parents.
func (p probe) climb(limits []Memory, jobUsed int64, job, mount, group string, files cgroupFiles) (
	[]Memory, int64,
) {
	for at := path.Join("/", group); ; at = path.Dir(at) {
		dir := path.Join(mount, at)
		if usage, ok := p.number(path.Join(dir, files.usage)); ok {
			used := max(0, usage-p.reclaimable(dir, files))
			if job != "" && path.Base(at) == "job_"+job {
				jobUsed = max(jobUsed, used)
			}
			for _, name := range files.limits {
				if limit, ok := p.number(path.Join(dir, name)); ok && limit < unlimited {
					limits = append(limits, memory(limit, used, "the memory limit of control group "+at))
				}
			}
		}
		if at == "/" {
			return limits, jobUsed
		}
	}
}

// reclaimable returns how many bytes of a group's use are file pages that the kernel would drop
// before it kills a process. The kernel computes the machine's available memory the same way: all
// file pages but a few.
//
// Source: Linux, mm/show_mem.c, si_mem_available.
func (p probe) reclaimable(dir string, files cgroupFiles) int64 {
	sum := int64(0)
	stat := p.text(path.Join(dir, "memory.stat"))
	for _, key := range files.file {
		n, _ := field(stat, key)
		sum += n
	}
	for _, key := range files.dirty {
		n, _ := field(stat, key)
		sum -= n
	}
	return max(0, sum)
}

// number reads a file that holds one number; "max" is no limit.
func (p probe) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(p.text(name)), 10, 64)
	return n, err == nil && n >= 0
}

// field reads the number after a name in a file with lines "name number …".
func (p probe) field(name, key string) (int64, bool) { return field(p.text(name), key) }

func field(text, key string) (int64, bool) {
	for line := range strings.Lines(text) {
		rest, found := strings.CutPrefix(line, key)
		if words := strings.Fields(rest); found && len(words) > 0 && (rest[0] == ' ' || rest[0] == '\t') {
			n, err := strconv.ParseInt(words[0], 10, 64)
			return n, err == nil && n >= 0 && n < math.MaxInt64>>2
		}
	}
	return 0, false
}

// text returns a file's content, "" if it cannot be read: kernels have different files.
func (p probe) text(name string) string {
	content, err := p.readFile(name)
	if err != nil {
		return ""
	}
	return string(content)
}
