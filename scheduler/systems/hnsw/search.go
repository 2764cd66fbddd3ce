package hnsw

import "slices"

// search is SEARCH-LAYER (Algorithm 2). It runs until it has the ef nearest nodes, and then while
// it finds more within the radius, up to `most`.
type search struct {
	met   []uint32 // by node: the last round that met it
	round uint32

	view      view
	layer, ef int
	radius    float32 // squared
	most      int
	open      heap // nodes whose links are not followed yet, nearest first
	found     heap // nodes kept, complemented keys: farthest first
	nearToFar []key
}

func (s *search) begin(v view, layer, ef int, squaredRadius float32, most int) {
	s.view, s.layer, s.ef, s.radius, s.most = v, layer, ef, squaredRadius, most
	s.open, s.found = s.open[:0], s.found[:0]
	s.round++
	if s.round == 0 { // after 2^32 rounds
		clear(s.met)
		s.round = 1
	}
}

// meet looks at a node once, and keeps it if it is one of the nearest or within the radius.
func (s *search) meet(node int32) {
	if s.met[node] == s.round {
		return
	}
	s.met[node] = s.round
	k := s.view.key(node)
	if len(s.found) >= s.ef && k > ^s.found[0] &&
		(k.squared() >= s.radius || len(s.found) >= s.most) {
		return
	}
	s.open.push(k)
	s.found.push(^k)
	for len(s.found) > s.most || len(s.found) > s.ef && (^s.found[0]).squared() >= s.radius {
		s.found.pop()
	}
}

// run returns what it finds from the nodes met so far, nearest first. The next run reuses the
// slice.
func (s *search) run() []key {
	for len(s.open) > 0 {
		k := s.open.pop()
		if len(s.found) >= s.ef && k > ^s.found[0] {
			break
		}
		for _, node := range s.view.index.linked[s.view.node(k)][s.layer] {
			s.meet(node)
		}
	}
	s.nearToFar = s.nearToFar[:0]
	for _, k := range s.found {
		s.nearToFar = append(s.nearToFar, ^k)
	}
	slices.Sort(s.nearToFar)
	return s.nearToFar
}
