package main

import (
	"fmt"
	"math"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// A memorySize is how much memory the user gives to samples: bytes of each node, or a share of the data over
// all nodes.
type memorySize struct {
	bytes   int64   // of each node; counts where isShare is false
	share   float64 // of the data's bytes, in [0, 1]
	isShare bool
}

// parseMemory reads "64GiB" (a size), "20%" (a share of the data) or "0".
//
// Sizes are in [0, 2⁶³), shares in [0, 100]. Units are binary (KiB, MiB, GiB, TiB) or decimal (KB, MB, GB, TB).
func parseMemory(text string) (memorySize, error) {
	if number, found := strings.CutSuffix(strings.TrimSpace(text), "%"); found {
		percent, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(percent >= 0 && percent <= 100) {
			return memorySize{}, fmt.Errorf("%q is no share of memory: it must be between 0%% and 100%%", text)
		}
		return memorySize{share: percent / 100, isShare: true}, nil
	}
	bytes, err := parseSize(text)
	return memorySize{bytes: bytes}, err
}

// parseSize reads a number of bytes with or without a unit, in [0, 2⁶³).
func parseSize(text string) (int64, error) {
	bytes, err := humanize.ParseBytes(strings.TrimSpace(text))
	if err != nil || bytes > math.MaxInt64 {
		return 0, fmt.Errorf("%q is no size such as 64GiB, 20GB or 0", text)
	}
	return int64(bytes), nil
}

// memoryAvailable returns how many bytes this process may still use, and what sets that limit, in words.
// It is the least of what the control groups up the tree leave and what the machine has free.
//
// The size of /dev/shm is no part of it: the kernel does not bind a memfd by that mount's limit.
func memoryAvailable() (bytes int64, from string) {
	return memoryLimits{readFile: os.ReadFile}.available()
}

// memoryLimits finds the limits in files read by readFile (a test gives its own).
type memoryLimits struct {
	readFile func(string) ([]byte, error)
}

func (l memoryLimits) available() (bytes int64, from string) {
	bytes, from = math.MaxInt64, "no limit found"
	take := func(b int64, what string) {
		if b < bytes {
			bytes, from = max(b, 0), what
		}
	}
	if free, ok := l.field("/proc/meminfo", "MemAvailable:"); ok {
		take(free*1024, "the machine's available memory")
	}
	for line := range strings.Lines(l.text("/proc/self/cgroup")) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(parts) != 3:
		case parts[0] == "0" && parts[1] == "":
			l.climb("/sys/fs/cgroup", parts[2], cgroupV2, take)
		case strings.Contains(","+parts[1]+",", ",memory,"):
			l.climb("/sys/fs/cgroup/memory", parts[2], cgroupV1, take)
		}
	}
	return bytes, from
}

// The files of a memory control group: its limit, its use, and the part of the use that is cache of files and
// would be given up first.
//
// Source: Linux, admin-guide/cgroup-v2, "Memory Interface Files"; cgroup-v1/memory, §5.2 stat file.
type cgroupFiles struct{ limit, usage, inactiveFile string }

var (
	cgroupV2 = cgroupFiles{"memory.max", "memory.current", "inactive_file"}
	cgroupV1 = cgroupFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
)

// climb takes the limits of the control group and of all its parents.
func (l memoryLimits) climb(mount, group string, files cgroupFiles, take func(int64, string)) {
	for at := path.Join("/", group); ; at = path.Dir(at) {
		dir := path.Join(mount, at)
		limit, ok := l.number(path.Join(dir, files.limit))
		if usage, used := l.number(path.Join(dir, files.usage)); ok && used {
			reclaimable, _ := l.field(path.Join(dir, "memory.stat"), files.inactiveFile)
			take(limit-max(0, usage-reclaimable), "the memory limit of control group "+at)
		}
		if at == "/" {
			return
		}
	}
}

// number reads a file of one number; "max" is none.
func (l memoryLimits) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(l.text(name)), 10, 64)
	return n, err == nil && n >= 0
}

// field reads the number after a name in a file of lines "name number …".
func (l memoryLimits) field(name, key string) (int64, bool) {
	for line := range strings.Lines(l.text(name)) {
		words := strings.Fields(line)
		if len(words) >= 2 && words[0] == key {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// text returns a file's content, "" where it cannot be read: another kernel has other files.
func (l memoryLimits) text(name string) string {
	content, err := l.readFile(name)
	if err != nil {
		return ""
	}
	return string(content)
}
