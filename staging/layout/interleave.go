package layout

import (
	"cmp"
	"slices"
)

// MaxRPCs is how many requests a Lustre client has under way at one target unless its administrator says otherwise;
// more only wait in the client.
//
// Source: Lustre, lustre/include/obd.h, OBD_MAX_RIF_DEFAULT.
const MaxRPCs = 8

// Interleave returns order rearranged so that requests which follow each other lie on different targets as far as
// possible: in each window of that many elements every target's are spread evenly.
//
// No element leaves its window, so none moves by window or more; elements of one target keep their order. It is
// deterministic, and a pure function as targetOf is one; targetOf is called once an element. It panics when window is below 1.
func Interleave[ID any](order []ID, targetOf func(ID) int, window int) []ID {
	if window < 1 {
		panic("layout: a window of less than 1 element holds nothing to interleave")
	}
	spread := make([]ID, 0, len(order))
	for part := range slices.Chunk(order, window) {
		spread = appendSpread(spread, part, targetOf)
	}
	return spread
}

// appendSpread appends one window. Element k of the n of its target belongs at (k+½)/n of the window.
func appendSpread[ID any](to, window []ID, targetOf func(ID) int) []ID {
	type place struct{ at, target, k int }
	places := make([]place, len(window))
	count := map[int]int{}
	for i, id := range window {
		target := targetOf(id)
		places[i] = place{i, target, count[target]}
		count[target]++
	}
	slices.SortStableFunc(places, func(a, b place) int {
		return cmp.Compare((2*a.k+1)*count[b.target], (2*b.k+1)*count[a.target])
	})
	for _, p := range places {
		to = append(to, window[p.at])
	}
	return to
}

// PerTarget returns how many of inFlight requests in all one target may have, when the data lies on that many
// targets: twice its share, so that chance in the order leaves no request unused, and at most MaxRPCs; at least 1.
// A target that stalls then holds up only its own requests. Without targets (0 or fewer) there is no limit but inFlight.
func PerTarget(inFlight, targets int) int {
	if targets <= 0 {
		return max(1, inFlight)
	}
	return max(1, min(inFlight, MaxRPCs, (2*inFlight+targets-1)/targets))
}
