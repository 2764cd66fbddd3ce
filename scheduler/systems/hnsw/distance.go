package hnsw

import (
	"math"
	"slices"
)

// view is a vector that distances are measured from.
type view struct {
	index  *Index
	vector []float32
	// below 2^31; it varies by node, so that not all nodes choose the same ones among equal vectors
	salt uint32
}

// key is a node and its squared distance from a view. Nearer nodes have smaller keys; at equal
// distance, those with the smaller node number XOR salt.
type key uint64

// none is larger than every key.
const none key = math.MaxUint64

func (v view) key(node int32) key {
	return key(math.Float32bits(Squared(v.vector, v.index.Vector(node))))<<32 | key(
		uint32(node)^v.salt)
}

func (v view) node(k key) int32 { return int32(uint32(k) ^ v.salt) }

func (k key) squared() float32 { return math.Float32frombits(uint32(k >> 32)) }

// choose returns at most `most` of the candidates, which must be sorted: those that are no nearer
// to one chosen before than to the view, and then the nearest of the rest (Algorithm 4, with
// keepPrunedConnections). Equal vectors count as nearer to each other, so that they do not shut out
// all others.
func (v view) choose(candidates []key, most int) []key {
	chosen, rest := make([]key, 0, most), make([]key, 0, len(candidates))
	for _, c := range candidates {
		if len(chosen) == most {
			return chosen
		}
		vector := v.index.Vector(v.node(c))
		if slices.ContainsFunc(chosen, func(k key) bool {
			d := Squared(vector, v.index.Vector(v.node(k)))
			return d < c.squared() || d == 0
		}) {
			rest = append(rest, c)
		} else {
			chosen = append(chosen, c)
		}
	}
	return append(chosen, rest[:min(len(rest), most-len(chosen))]...)
}

// Squared returns the squared Euclidean distance of two vectors of the same dimensions, in float32.
// It adds four independent sums in a fixed order and fuses no product with a sum, so that it has
// the same bits on every machine.
func Squared(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		a, b := a[i:i+4:i+4], b[i:i+4:i+4]
		d0, d1, d2, d3 := a[0]-b[0], a[1]-b[1], a[2]-b[2], a[3]-b[3]
		s0 += float32(d0 * d0)
		s1 += float32(d1 * d1)
		s2 += float32(d2 * d2)
		s3 += float32(d3 * d3)
	}
	for ; i < len(a); i++ {
		d := a[i] - b[i]
		s0 += float32(d * d)
	}
	return (s0 + s1) + (s2 + s3)
}

// heap is a binary heap with the least key first.
type heap []key

func (h *heap) push(k key) {
	*h = append(*h, k)
	s := *h
	i := len(s) - 1
	for i > 0 && s[(i-1)/2] > k {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = k
}

func (h *heap) pop() key {
	s := *h
	least, k := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return least
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1] < s[child] {
			child++
		}
		if s[child] >= k {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = k
	return least
}
