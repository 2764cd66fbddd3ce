package batchscript

import (
	"math"
	"strconv"
	"strings"

	"rankpool/slurm"
)

// A request is what the directives ask for. Numbers are 0 if the script does not give them.
type request struct {
	nodes        int // 1 if the script does not give it
	tasksPerNode int // 0: not given, which means one per node
	gpusPerNode  int
	cpusPerTask  int
	memoryBytes  int64 // of each node; 0: not given, or everything the node has
	memoryGiven  bool
}

// newRequest reads the directives. Of a range of nodes it uses the lower end.
func newRequest(options []Option) request {
	r := request{nodes: max(1, number(options, "nodes"))}
	r.tasksPerNode = number(options, "ntasks-per-node")
	if r.tasksPerNode == 0 {
		r.tasksPerNode = (number(options, "ntasks") + r.nodes - 1) / r.nodes
	}
	r.gpusPerNode = gpusPerNode(options, r.nodes, max(1, r.tasksPerNode))
	if r.tasksPerNode == 0 {
		r.tasksPerNode = number(options, "ntasks-per-gpu") * r.gpusPerNode
	}
	r.cpusPerTask = number(options, "cpus-per-task")
	r.readMemory(options)
	return r
}

// readMemory reads the memory of a node. With --exclusive the job has all CPUs of a node, whose
// number is not in the script.
func (r *request) readMemory(options []Option) {
	cpus := max(1, r.cpusPerTask) * max(1, r.tasksPerNode)
	if perGPU := number(options, "cpus-per-gpu"); perGPU > 0 {
		cpus = perGPU * r.gpusPerNode
	}
	if _, exclusive := find(options, "exclusive"); exclusive {
		cpus = 0
	}
	for _, m := range []struct {
		name  string
		times int
	}{{"mem", 1}, {"mem-per-cpu", cpus}, {"mem-per-gpu", r.gpusPerNode}} {
		if o, found := find(options, m.name); found {
			r.memoryGiven = true
			if bytes, ok := slurm.Size(o.Value); ok && float64(bytes)*float64(m.times) < math.MaxInt64 {
				r.memoryBytes = bytes * int64(m.times)
			}
		}
	}
}

// number returns the number at the beginning of an option's value, 0 if there is none.
func number(options []Option, name string) int {
	o, _ := find(options, name)
	end := 0
	for end < len(o.Value) && o.Value[end] >= '0' && o.Value[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(o.Value[:end])
	if err != nil || n > 1<<20 { // more than any machine has, so that products do not overflow
		return 0
	}
	return n
}

// gpusPerNode counts the GPUs of a node, however they are requested.
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

// countGPUs parses "4", "a100:4", and "a100:2,v100:2".
func countGPUs(list string) int {
	sum := 0
	for part := range strings.SplitSeq(list, ",") {
		fields := strings.Split(part, ":")
		n, err := strconv.Atoi(strings.TrimSpace(fields[len(fields)-1]))
		if err != nil && len(fields) == 1 && part != "" {
			n = 1 // only a type
		}
		if n > 0 && n <= 1<<16 {
			sum += n
		}
	}
	return min(sum, 1<<16)
}

// timeSeconds parses a time as sbatch does: minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S. 0 is no
// limit.
//
// Source: SchedMD, sbatch(1), --time.
func timeSeconds(text string) (seconds int64, ok bool) {
	days, clock, hasDays := strings.Cut(text, "-")
	units := []int64{3600, 60, 1}
	if !hasDays {
		days, clock = "0", days
	}
	parts := strings.Split(clock, ":")
	if !hasDays && len(parts) < 3 {
		units = units[1:]
	}
	if len(parts) > len(units) {
		return 0, false
	}
	n, err := strconv.ParseUint(days, 10, 16)
	seconds, ok = int64(n)*24*3600, err == nil
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 31)
		seconds, ok = seconds+int64(n)*units[i], ok && err == nil
	}
	return seconds, ok
}
