package batchscript

import (
	"strconv"
	"strings"
)

// A request is what the directives ask for, of a range of nodes its lower end.
type request struct {
	nodes int // at least 1
	tasks int // of each node, at least 1
	gpus  int // of each node
}

func newRequest(options []option) request {
	r := request{nodes: max(1, number(options, "nodes")), tasks: number(options, "ntasks-per-node")}
	if r.tasks == 0 {
		r.tasks = (number(options, "ntasks") + r.nodes - 1) / r.nodes
	}
	r.gpus = gpusOf(options, r.nodes)
	if r.tasks == 0 {
		r.tasks = number(options, "ntasks-per-gpu") * r.gpus
	}
	r.tasks = max(1, r.tasks)
	return r
}

// gpusOf counts the GPUs of a node, in the usual ways to ask for them: 4, a100:4, gpu:a100:4.
func gpusOf(options []option, nodes int) int {
	o, _ := find(options, "gpus-per-node", "gpus", "gres")
	sum := 0
	for part := range strings.SplitSeq(o.value, ",") {
		n, err := strconv.ParseUint(part[strings.LastIndexByte(part, ':')+1:], 10, 16)
		switch {
		case o.name == "gres" && !strings.HasPrefix(part, "gpu"):
		case err != nil && part != "":
			sum++ // only a type
		default:
			sum += int(n)
		}
	}
	if o.name == "gpus" {
		return (sum + nodes - 1) / nodes
	}
	return sum
}
