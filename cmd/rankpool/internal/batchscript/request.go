package batchscript

import (
	"math"
	"strconv"
	"strings"
)

// A request is what the directives ask for. Numbers are 0 where the script does not say.
type request struct {
	options      []Option
	nodes        int // 1 where the script does not say
	tasksPerNode int // 0: not given, which is one a node
	gpusPerNode  int
	cpusPerTask  int
	memoryBytes  int64 // of each node; 0: not given, or all the node has
	memoryGiven  bool
}

// newRequest reads the directives. Of a range of nodes the least counts.
func newRequest(options []Option) request {
	r := request{options: options, nodes: max(1, number(options, "nodes"))}
	tasks := number(options, "ntasks")
	r.tasksPerNode = number(options, "ntasks-per-node")
	r.gpusPerNode = gpusPerNode(options, r.nodes, max(1, r.tasksPerNode))
	switch perGPU := number(options, "ntasks-per-gpu"); {
	case r.tasksPerNode > 0:
	case tasks > 0:
		r.tasksPerNode = (tasks + r.nodes - 1) / r.nodes
	case perGPU > 0 && r.gpusPerNode > 0:
		r.tasksPerNode = perGPU * r.gpusPerNode
	}
	r.cpusPerTask = number(options, "cpus-per-task")
	for _, m := range []struct {
		name  string
		times int
	}{
		{"mem", 1},
		{"mem-per-cpu", max(1, r.cpusPerTask) * max(1, r.tasksPerNode)},
		{"mem-per-gpu", r.gpusPerNode},
	} {
		if o, found := find(options, m.name); found {
			r.memoryGiven = true
			if bytes, ok := slurmSize(o.Value); ok && float64(bytes)*float64(m.times) < math.MaxInt64 {
				r.memoryBytes = bytes * int64(m.times)
			}
		}
	}
	return r
}

// number returns the number that an option's value begins with, 0 where there is none.
func number(options []Option, name string) int {
	o, _ := find(options, name)
	end := 0
	for end < len(o.Value) && o.Value[end] >= '0' && o.Value[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(o.Value[:end])
	if err != nil || n > 1<<24 { // more than any machine has, so that products stay numbers
		return 0
	}
	return n
}

// gpusPerNode counts the GPUs of a node in whatever way they are asked for.
func gpusPerNode(options []Option, nodes, tasksPerNode int) int {
	if o, found := find(options, "gpus-per-node"); found {
		return countGPUs(o.Value)
	}
	if o, found := find(options, "gpus-per-task"); found {
		return countGPUs(o.Value) * tasksPerNode
	}
	if o, found := find(options, "gpus"); found {
		return (countGPUs(o.Value) + nodes - 1) / nodes
	}
	o, _ := find(options, "gres")
	n := 0
	for part := range strings.SplitSeq(o.Value, ",") {
		if rest, isGPU := strings.CutPrefix(strings.TrimPrefix(part, "gres:"), "gpu"); isGPU {
			if rest = strings.TrimPrefix(rest, ":"); rest == "" {
				rest = "1"
			}
			n += countGPUs(rest)
		}
	}
	return n
}

// countGPUs reads "4", "a100:4", and "a100:2,v100:2".
func countGPUs(list string) int {
	sum := 0
	for part := range strings.SplitSeq(list, ",") {
		fields := strings.Split(part, ":")
		n, err := strconv.Atoi(strings.TrimSpace(fields[len(fields)-1]))
		if err != nil && len(fields) == 1 && part != "" {
			n = 1 // a type alone
		}
		if n > 0 && n <= 1<<16 {
			sum += n
		}
	}
	return min(sum, 1<<16)
}

// slurmSize reads a size as sbatch does: a number of MiB, or with K, M, G or T of the binary unit.
//
// Source: SchedMD, sbatch(1), --mem.
func slurmSize(text string) (bytes int64, ok bool) {
	unit := int64(1 << 20)
	digits := strings.TrimRight(text, "bB")
	if digits != "" {
		at := strings.IndexByte("KMGT", digits[len(digits)-1]&^0x20)
		if at >= 0 {
			unit, digits = 1<<(10*(at+1)), digits[:len(digits)-1]
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n * unit, err == nil && n >= 0 && n <= math.MaxInt64/unit
}

// isTime reports whether sbatch reads text as a time: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S.
//
// Source: SchedMD, sbatch(1), --time.
func isTime(text string) bool {
	days, clock, hasDays := strings.Cut(text, "-")
	if !hasDays {
		clock = days
	} else if _, err := strconv.ParseUint(days, 10, 16); err != nil {
		return false
	}
	parts := strings.Split(clock, ":")
	for _, part := range parts {
		if _, err := strconv.ParseUint(part, 10, 31); err != nil {
			return false
		}
	}
	return len(parts) <= 3
}
