package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// glance is what the machine had done at some time, in seconds of all its processors together.
type glance struct {
	at     time.Time
	busy   float64 // with anything
	stolen float64 // by the hypervisor
	ours   float64 // with this process and its children that ended
	load   string  // the average over the last minute
}

// ticksPerSecond is the unit of /proc/stat, the same on every Linux.
const ticksPerSecond = 100

// look returns the glance at the machine now; what cannot be read is 0.
func look() glance {
	g := glance{at: time.Now()}
	// cpu user nice system idle iowait irq softirq steal …
	if words := strings.Fields(firstLine("/proc/stat")); len(words) > 8 {
		var ticks [9]float64
		for i := range ticks {
			ticks[i], _ = strconv.ParseFloat(words[i], 64) // the first word is not a number and becomes 0
		}
		g.busy = (ticks[1] + ticks[2] + ticks[3] + ticks[6] + ticks[7]) / ticksPerSecond
		g.stolen = ticks[8] / ticksPerSecond
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if syscall.Getrusage(who, &used) == nil {
			g.ours += time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
		}
	}
	g.load, _, _ = strings.Cut(firstLine("/proc/loadavg"), " ")
	return g
}

// until describes a measurement that ends with end: its time, its machine, and the load from other
// programs.
func (g glance) until(end glance) string {
	all := end.at.Sub(g.at).Seconds() * float64(runtime.NumCPU())
	others := max(0, end.busy-g.busy-(end.ours-g.ours))
	return fmt.Sprintf("Measured on %s to %s UTC, on %d processors (%s, cores: %d) and %s of memory, "+
		"Linux %s. "+
		"Load average %s at the beginning, %s at the end; other programs had %.0f %% of the "+
		"processors' time, the hypervisor %.0f %%.",
		g.at.UTC().Format("2 January 2006, 15:04"), end.at.UTC().Format("15:04"), runtime.NumCPU(),
		field("/proc/cpuinfo", "model name"), cores(), memoryText(field("/proc/meminfo", "MemTotal")),
		firstLine("/proc/sys/kernel/osrelease"), g.load, end.load,
		100*others/all, 100*(end.stolen-g.stolen)/all)
}

// cores returns the number of cores: two processors may be threads of one. It is the number of
// processors if Linux does not say which share a core.
func cores() int {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/topology/core_cpus_list")
	distinct := map[string]bool{}
	for _, path := range paths {
		distinct[firstLine(path)] = true
	}
	if len(distinct) == 0 {
		return runtime.NumCPU()
	}
	return min(len(distinct), runtime.NumCPU())
}

func firstLine(path string) string {
	text, _ := os.ReadFile(path)
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// field returns the value of the first line "NAME : VALUE" of a file.
func field(path, name string) string {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// memoryText converts a size in kB, as in /proc/meminfo, to GiB.
func memoryText(kB string) string {
	number, err := strconv.ParseFloat(strings.TrimSuffix(kB, " kB"), 64)
	if err != nil {
		return kB
	}
	return fmt.Sprintf("%.0f GiB", number/(1<<20))
}
