// Package hnsw is an index of vectors that finds nearest neighbours approximately: a hierarchical
// navigable small world graph whose vectors may move. The same calls give the same answers on every
// machine.
//
// Source: Malkov and Yashunin, "Efficient and robust approximate nearest neighbor search using
// hierarchical navigable small world graphs", TPAMI 2020, Algorithms 1 to 5. Differs: links always
// go both ways, so that a vector that moves takes all its links with it and none still leads to
// where it was; a search may also collect all vectors within a radius.
package hnsw

import (
	"fmt"
	"math/bits"
	"slices"
)

const (
	// links is M, the links that a node makes in a layer. Source: §4.1, a reasonable range is 5 to
	// 48; the default of hnswlib.
	links = 16
	// linksMax is Mmax, the most links of a node above the ground layer. Source: §4.1.
	linksMax = links
	// linksMaxGround is Mmax0, the same in the ground layer. Source: §4.1, 2·M.
	linksMaxGround = 2 * links
	// linksLeast is how many links a node keeps when its neighbours have too many. Among equal vectors
	// all links are equally useful, and some nodes would otherwise lose every one.
	linksLeast = links / 2
	// efConstruction is the number of candidates for a node's links.
	efConstruction = 48
)

// Index holds at most one vector per node. It is not safe for concurrent use.
type Index struct {
	dimensions int
	seed       uint64
	vectors    []float32   // [node][dimension]
	linked     [][][]int32 // [node][layer]: its neighbours there; nil: the node has no vector
	entry      int32       // a node of the highest layer; -1: the index is empty
	search     search
}

// New returns an empty index for the nodes 0 … nodes-1 with vectors of the given dimensions. seed
// determines the nodes' layers.
func New(nodes, dimensions int, seed int64) *Index {
	x := &Index{
		dimensions: dimensions, seed: uint64(seed), vectors: make([]float32, nodes*dimensions),
		linked: make([][][]int32, nodes), entry: -1,
	}
	x.search.met = make([]uint32, nodes)
	return x
}

// Has reports whether node has a vector.
func (x *Index) Has(node int32) bool { return x.linked[node] != nil }

// Vector returns the vector of node, which must have one. The caller must not change it. It changes
// with node's next Update.
func (x *Index) Vector(node int32) []float32 {
	return x.vectors[int(node)*x.dimensions : (int(node)+1)*x.dimensions]
}

// Update sets the vector of node, whether or not it has one. It copies the vector, whose components
// must be finite. It panics if the vector has other dimensions than the index.
func (x *Index) Update(node int32, vector []float32) {
	if len(vector) != x.dimensions {
		panic(fmt.Sprintf("hnsw: Update with %d dimensions in an index of %d.", len(vector),
			x.dimensions))
	}
	switch {
	case !x.Has(node):
		x.linked[node] = make([][]int32, x.layers(node))
	case slices.Equal(x.Vector(node), vector):
		return
	default:
		x.unlink(node)
	}
	copy(x.Vector(node), vector)
	x.insert(node)
}

// Within appends to nodes those whose squared distance to node's vector is below squaredRadius,
// node among them, nearest first and at most `most` of them, and returns the extended slice. It may
// miss some: the fewer, the larger ef, which is the number of nodes that the search keeps whether
// or not they are within the radius. node must have a vector; 0 < squaredRadius, 1 ≤ ef, 1 ≤ most.
func (x *Index) Within(nodes []int32, node int32, squaredRadius float32, most, ef int) []int32 {
	s := &x.search
	v := view{x, x.Vector(node), 0}
	s.begin(v, 0, ef, squaredRadius, max(ef, most))
	s.meet(node)
	found := s.run()
	for _, k := range found[:min(most, len(found))] {
		if k.squared() >= squaredRadius {
			break
		}
		nodes = append(nodes, v.node(k))
	}
	return nodes
}

// insert links node into its layers (Algorithm 1).
func (x *Index) insert(node int32) {
	if x.entry < 0 {
		x.entry = node
		return
	}
	s, v := &x.search, x.from(node)
	own, top := len(x.linked[node])-1, len(x.linked[x.entry])-1
	near := []key{v.key(x.entry)}
	for layer := top; layer >= 0; layer-- {
		ef := 1
		if layer <= own {
			ef = efConstruction
		}
		s.begin(v, layer, ef, 0, ef)
		for _, k := range near {
			s.meet(v.node(k))
		}
		near = append(near[:0], s.run()...)
		if layer <= own {
			for _, k := range v.choose(near, links) {
				x.connect(layer, node, v.node(k))
			}
		}
	}
	if own > top {
		x.entry = node
	}
}

// connect links a and b in a layer.
func (x *Index) connect(layer int, a, b int32) {
	if slices.Contains(x.linked[a][layer], b) {
		return
	}
	x.linked[a][layer] = append(x.linked[a][layer], b)
	x.linked[b][layer] = append(x.linked[b][layer], a)
	x.shrink(layer, a)
	x.shrink(layer, b)
}

// shrink removes node's least useful link if it has one too many: the last one in choose's order
// whose other end can spare it.
func (x *Index) shrink(layer int, node int32) {
	most, linked := linksMax, x.linked[node][layer]
	if layer == 0 {
		most = linksMaxGround
	}
	if len(linked) <= most {
		return
	}
	keys, v := make([]key, len(linked)), x.from(node)
	for i, l := range linked {
		keys[i] = v.key(l)
	}
	slices.Sort(keys)
	ordered := v.choose(keys, len(keys))
	drop := v.node(ordered[most])
	for _, k := range slices.Backward(ordered) {
		if other := v.node(k); len(x.linked[other][layer]) > linksLeast {
			drop = other
			break
		}
	}
	x.cut(layer, node, drop)
	x.cut(layer, drop, node)
}

// cut removes b from a's links.
func (x *Index) cut(layer int, a, b int32) {
	l := x.linked[a][layer]
	i := slices.Index(l, b)
	l[i] = l[len(l)-1]
	x.linked[a][layer] = l[:len(l)-1]
}

// unlink removes node from the graph. Each of its neighbours gets a link to the nearest of the
// others that it is not linked to, so that no path is lost.
func (x *Index) unlink(node int32) {
	for layer, linked := range x.linked[node] {
		for _, a := range linked {
			x.cut(layer, a, node)
		}
		x.linked[node][layer] = nil
		for _, a := range linked {
			v, nearest := x.from(a), none
			for _, b := range linked {
				if b != a && !slices.Contains(x.linked[a][layer], b) {
					nearest = min(nearest, v.key(b))
				}
			}
			if nearest != none {
				x.connect(layer, a, v.node(nearest))
			}
		}
	}
	if node == x.entry {
		x.entry = x.highest(node)
	}
}

// highest returns the first node of the highest layer other than except, or -1 if there is none.
func (x *Index) highest(except int32) int32 {
	best, layers := int32(-1), 0
	for node, l := range x.linked {
		if len(l) > layers && int32(node) != except {
			best, layers = int32(node), len(l)
		}
	}
	return best
}

// layers returns the number of layers that node is in: l or more with probability M^-(l-1), as with
// mL = 1/ln M in §4.1.
func (x *Index) layers(node int32) int {
	return 1 + bits.TrailingZeros64(x.hash(node)|1<<32)/bits.TrailingZeros(links)
}

// hash returns 64 random bits of a node, by SplitMix64.
func (x *Index) hash(node int32) uint64 {
	z := x.seed + (uint64(node)+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// from returns the view from a node.
func (x *Index) from(node int32) view { return view{x, x.Vector(node), uint32(x.hash(node) >> 33)} }
