package main

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
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
	return fmt.Sprintf("Measured on %s to %s UTC, on %d processors (%s) and %s of memory, Linux %s. "+
		"Beside another program, one takes %.2f times as long. "+
		"Load average %s at the beginning, %s at the end; other programs had %.0f %% of the "+
		"processors' time, the hypervisor %.0f %%.",
		g.at.UTC().Format("2 January 2006, 15:04"), end.at.UTC().Format("15:04"), runtime.NumCPU(),
		field("/proc/cpuinfo", "model name"), memoryText(field("/proc/meminfo", "MemTotal")),
		firstLine("/proc/sys/kernel/osrelease"), slowdown(), g.load, end.load,
		100*others/all, 100*(end.stolen-g.stolen)/all)
}

// sharesCore is the slowdown above which two processors count as threads of one core: two cores
// lose a tenth at most, by a lower clock.
const sharesCore = 1.25

// slowdown returns how many times as long a program takes beside another one. Virtual machines do
// not always say which processors are threads of one core, so it is measured: by hashing, which
// needs all of a core.
var slowdown = sync.OnceValue(func() float64 {
	alone, beside := math.Inf(1), math.Inf(1)
	for range 9 {
		alone = min(alone, hashing(1).Seconds())
		beside = min(beside, hashing(2).Seconds())
	}
	return beside / alone
})

// hashing returns how long it takes to hash 64 MiB in each of n threads.
func hashing(n int) time.Duration {
	var all sync.WaitGroup
	begin := time.Now()
	for range n {
		all.Go(func() {
			block := make([]byte, 64<<10)
			for range 1 << 10 {
				sum := sha256.Sum256(block)
				block[0] = sum[0]
			}
		})
	}
	all.Wait()
	return time.Since(begin)
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
