package systems

import (
	"rankpool/scheduler/draw"
)

// homophily is a queue of samples with many neighbours. Each is served in place of all samples in
// its neighbour list.
//
// Source: Wang et al., "SpiderCache", ICPP 2025, §4.2, Homophily Cache. Differs: the paper does not
// say which node serves a sample that is in several lists. As in Algorithm 1's neighbor_to_key, the
// node pushed last does, and when it leaves, none does. A node in the queue serves itself, whatever
// lists it is in.
type homophily struct {
	memory        *Memory
	capacityBytes int64
	usedBytes     int64
	queue         []homophilyNode // oldest first
	server        []int32         // by sample: 1 + the node that is served for it; 0: none
}

type homophilyNode struct {
	id         draw.SampleID
	neighbours []int32
}

func newHomophily(memory *Memory, samples int) *homophily {
	return &homophily{memory: memory, server: make([]int32, samples)}
}

// Serves returns the sample that is served for id, or false when there is none.
func (h *homophily) Serves(id draw.SampleID) (draw.SampleID, bool) {
	s := h.server[id]
	return draw.SampleID(s - 1), s != 0
}

// Has reports whether id is in the queue.
func (h *homophily) Has(id draw.SampleID) bool { return h.server[id] == int32(id)+1 }

// Push adds id, which must not be in memory, to the queue with a copy of its neighbours. The oldest
// nodes make room for it. A sample larger than the cache is not added.
func (h *homophily) Push(id draw.SampleID, neighbours []int32, rank int32) {
	size := h.memory.Size(id)
	if size > h.capacityBytes {
		return
	}
	h.shrink(h.capacityBytes - size)
	h.memory.Keep(id, rank)
	h.usedBytes += size
	node := homophilyNode{id, append([]int32(nil), neighbours...)}
	h.queue = append(h.queue, node)
	h.server[id] = int32(id) + 1
	h.serve(node)
}

// Renew gives each node in the queue the list that neighbours returns for it, as if all were pushed
// again. A node for which there is none keeps its list. neighbours may return the same slice for
// each.
func (h *homophily) Renew(neighbours func(id draw.SampleID) (list []int32, ok bool)) {
	clear(h.server)
	for _, node := range h.queue {
		h.server[node.id] = int32(node.id) + 1
	}
	for i := range h.queue {
		node := &h.queue[i]
		if list, ok := neighbours(node.id); ok {
			node.neighbours = append(node.neighbours[:0], list...)
		}
		h.serve(*node)
	}
}

// serve makes a node serve its neighbours.
func (h *homophily) serve(node homophilyNode) {
	for _, n := range node.neighbours {
		if !h.Has(draw.SampleID(n)) {
			h.server[n] = int32(node.id) + 1
		}
	}
}

// Resize changes the capacity, and drops the oldest nodes until the rest fits.
func (h *homophily) Resize(capacityBytes int64) {
	h.capacityBytes = capacityBytes
	h.shrink(capacityBytes)
}

// shrink drops the oldest nodes until no more than `most` bytes are used.
func (h *homophily) shrink(most int64) {
	for h.usedBytes > most {
		oldest := h.queue[0]
		h.queue[0] = homophilyNode{}
		h.queue = h.queue[1:]
		h.memory.Drop(oldest.id)
		h.usedBytes -= h.memory.Size(oldest.id)
		h.server[oldest.id] = 0
		for _, n := range oldest.neighbours {
			if h.server[n] == int32(oldest.id)+1 {
				h.server[n] = 0
			}
		}
	}
}
