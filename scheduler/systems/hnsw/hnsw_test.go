package hnsw

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// cloud makes vectors in clusters, and moves them.
type cloud struct {
	state   uint64
	vectors [][]float32
}

func newCloud(nodes, dimensions, clusters int) *cloud {
	c := &cloud{state: 1}
	centres := make([][]float32, clusters)
	for i := range centres {
		centres[i] = make([]float32, dimensions)
		c.shift(centres[i], 10)
	}
	for i := range nodes {
		c.vectors = append(c.vectors, slices.Clone(centres[i%clusters]))
		c.shift(c.vectors[i], 4)
	}
	return c
}

// shift moves every component of v by at most width/2.
func (c *cloud) shift(v []float32, width float32) {
	for k := range v {
		c.state = c.state*6364136223846793005 + 1442695040888963407
		v[k] += float32(width * (float32(c.state>>40)/(1<<24) - 0.5))
	}
}

// brute is Within by brute force.
func (x *Index) brute(node int32, squaredRadius float32, most int) []int32 {
	var near []key
	v := view{x, x.Vector(node), 0}
	for other := range x.linked {
		if k := v.key(int32(other)); x.Has(int32(other)) && k.squared() < squaredRadius {
			near = append(near, k)
		}
	}
	slices.Sort(near)
	var nodes []int32
	for _, k := range near[:min(most, len(near))] {
		nodes = append(nodes, v.node(k))
	}
	return nodes
}

// checkLinks checks the graph's form: links go both ways, join nodes of the layer, and are not too
// many (§4.1, Mmax and Mmax0).
func (x *Index) checkLinks(t interface{ Errorf(string, ...any) }) {
	for node, layers := range x.linked {
		for layer, linked := range layers {
			if most := max(linksMax, linksMaxGround*(1-layer)); len(linked) > most {
				t.Errorf("node %d has %d links in layer %d, the most are %d", node, len(linked),
					layer, most)
			}
			for i, other := range linked {
				if other == int32(node) || slices.Contains(linked[:i], other) ||
					!slices.Contains(x.linked[other][layer], int32(node)) {
					t.Errorf("node %d has the links %v in layer %d, those of %d are %v", node,
						linked, layer, other, x.linked[other][layer])
				}
			}
		}
	}
}

// TestRecall compares searches with brute force when the index is new, and after all vectors moved
// several times.
func TestRecall(t *testing.T) {
	const nodes, radius, most = 1500, 14, 60
	c := newCloud(nodes, 8, 10)
	x := New(nodes, 8, 1)
	for round := range 4 {
		for node, v := range c.vectors {
			c.shift(v, float32(round))
			x.Update(int32(node), v)
		}
		x.checkLinks(t)
		found, all := 0, 0
		for node := int32(0); node < nodes; node += 7 {
			got, want := x.Within(nil, node, radius, most, 32), x.brute(node, radius, most)
			if !slices.Contains(got, node) || len(got) > most {
				t.Fatalf("round %d: node %d has the neighbours %v", round, node, got)
			}
			all += len(want)
			for _, n := range got {
				if slices.Contains(want, n) {
					found++
				}
			}
		}
		if all < 10*nodes/7 || float64(found) < 0.95*float64(all) {
			t.Errorf("round %d: %d neighbours of %d are found", round, found, all)
		}
	}
}

// TestWithin has so few nodes that a search sees all that can be reached. It checks that every node
// can be reached and every answer is exact, whatever moves where.
func TestWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 80).Draw(t, "nodes")
		coordinate := rapid.IntRange(-9, 9)
		x := New(nodes, 3, int64(rapid.IntRange(0, 99).Draw(t, "seed")))
		for range rapid.IntRange(1, 3*nodes).Draw(t, "updates") {
			node := int32(rapid.IntRange(0, nodes-1).Draw(t, "node"))
			x.Update(
				node, []float32{
					float32(coordinate.Draw(t, "x")), float32(coordinate.Draw(t, "y")),
					0,
				})
			squared, most := float32(rapid.IntRange(1, 300).Draw(t, "squared")),
				rapid.IntRange(1, 80).Draw(t, "most")
			if got, want := x.Within(nil, node, squared, most, 80),
				x.brute(node, squared, most); !slices.Equal(got, want) {
				t.Fatalf("within √%v of %d are %v, want %v", squared, node, got, want)
			}
		}
		x.checkLinks(t)
	})
}

// TestSameBits compares the answers and links with those of one run, to find machines that give
// others.
func TestSameBits(t *testing.T) {
	const nodes = 400
	c := newCloud(nodes, 5, 4)
	x := New(nodes, 5, 7)
	h := fnv.New64a()
	for range 2 {
		for node, v := range c.vectors {
			c.shift(v, 1)
			x.Update(int32(node), v)
			fmt.Fprint(h, x.Within(nil, int32(node), 4, 50, 16), x.linked[node])
		}
	}
	if got, want := h.Sum64(), uint64(0xcff42a9a8f00e892); got != want {
		t.Errorf("the answers have the hash %#x, want %#x", got, want)
	}
}

// TestEqualVectors moves far more equal vectors than links, at two places, one by one, and checks
// that every one is found from every one.
func TestEqualVectors(t *testing.T) {
	const nodes = 200
	x := New(nodes, 1, 1)
	for round := range 2 {
		for node := range int32(nodes) {
			x.Update(node, []float32{float32(2*round + int(node)%2)})
		}
		for node := range int32(nodes) {
			if got := len(x.Within(nil, node, 2, nodes, nodes)); got != nodes {
				t.Fatalf("round %d: %d of %d nodes are found from %d", round, got, nodes, node)
			}
		}
	}
	x.checkLinks(t)
}

func TestUpdateKeepsACopy(t *testing.T) {
	x, v := New(2, 1, 0), []float32{1}
	x.Update(0, v)
	v[0] = 5
	x.Update(1, v)
	if got := x.Vector(0)[0]; got != 1 {
		t.Errorf("node 0 is at %v", got)
	}
	if !x.Has(1) || New(2, 1, 0).Has(1) {
		t.Error("Has does not tell which nodes have vectors")
	}
}

func TestUpdatePanicsOfOtherDimensions(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a vector of three dimensions was taken into an index of two")
		}
	}()
	New(1, 2, 0).Update(0, make([]float32, 3))
}

func TestSquared(t *testing.T) {
	for _, c := range []struct {
		a, b []float32
		want float32
	}{
		{nil, nil, 0},
		{[]float32{3}, []float32{0}, 9},
		{[]float32{1, 2, 3, 4}, []float32{1, 2, 3, 4}, 0},
		{[]float32{1, 2, 3, 4, 5, 6}, []float32{0, 0, 0, 0, 0, 0}, 91},
	} {
		if got := Squared(c.a, c.b); got != c.want {
			t.Errorf("the squared distance of %v and %v is %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// TestLayers checks the share of nodes in the second layer and above against 1/M.
func TestLayers(t *testing.T) {
	x, upper := New(0, 1, 3), 0
	for node := range int32(16000) {
		if x.layers(node) > 1 {
			upper++
		}
	}
	if upper < 900 || upper > 1100 { // 1000 ± 3 standard deviations
		t.Errorf("%d of 16000 nodes are above the ground layer", upper)
	}
}
