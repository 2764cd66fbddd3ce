package draw

import (
	"fmt"
	"math"
	"slices"
)

// DefaultFloor is the default of SamplerConfig.Floor: no weight 1/(N q) exceeds 1/DefaultFloor = 5.
// Without a floor, a sample whose loss was near 0 gets a weight of thousands, and one step with a
// loss that has risen since ruins a network.
const DefaultFloor = 0.2

// NoFloor is a SamplerConfig.Floor of none: a sample with the least score may not be drawn again.
const NoFloor = -1

// A lift makes scores of any sign the non-negative numbers that samples are drawn by: if there are
// scores below 0, it adds as much to all that the least becomes 0, and it raises those below the
// floor to the floor.
type lift struct {
	base  float32 // the least score, if that is below 0
	floor float32 // in lifted scores
}

// newLift returns the lift of scores, of which none is below share times the mean of the lifted
// scores; NoFloor is a share of 0. It panics if a score is infinite or NaN.
func newLift(scores []float32, share float64) lift {
	var l lift
	for id, s := range scores {
		if !(math.Abs(float64(s)) <= math.MaxFloat32) {
			panic(fmt.Sprintf("scheduler: Draw got score %v of sample %d, it must be finite.", s, id))
		}
		if s < l.base {
			l.base = s
		}
	}
	if share <= 0 {
		return l
	}
	// The mean of the lifted scores grows with the floor, and the floor with the mean. Each round
	// takes those below the last floor for raised, until no more are.
	for below := -1; ; {
		raised, rest, floor := 0, 0.0, int64(bitsOf(l.floor))
		for _, s := range scores {
			x := s
			if l.base < 0 { // else raw changes nothing, and takes time
				x = l.raw(s)
			}
			bits := int64(bitsOf(x))
			below := (bits - floor) >> 63 // -1 if x is below, else 0
			raised -= int(below)
			rest += float64(math.Float32frombits(uint32(bits &^ below)))
		}
		if raised == below || raised == len(scores) || rest == 0 {
			return l
		}
		below = raised
		// rounded up, so that no weight exceeds 1 / share
		mean := rest / (float64(len(scores)) - float64(share*float64(raised)))
		l.floor = max(l.floor, math.Nextafter32(float32(share*mean), math.MaxFloat32))
	}
}

// bitsOf returns the bits of a number that is not negative. They are in the order of the numbers,
// and comparing them takes no branch, which would be mispredicted for most scores.
func bitsOf(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

// raw returns a score above the base, not raised to the floor.
func (l lift) raw(score float32) float32 {
	return float32(min(max(float64(score)-float64(l.base), 0), math.MaxFloat32))
}

// of returns a lifted score, which is finite and not negative.
func (l lift) of(score float32) float32 { return max(l.raw(score), l.floor) }

// all returns all scores lifted: scores itself if none changes.
func (l lift) all(scores []float32) []float32 {
	if l.base == 0 && !slices.ContainsFunc(scores, func(s float32) bool { return s < l.floor }) {
		return scores
	}
	lifted := make([]float32, len(scores))
	for id, s := range scores {
		if l.base < 0 {
			s = l.raw(s)
		}
		lifted[id] = math.Float32frombits(max(bitsOf(s), bitsOf(l.floor)))
	}
	return lifted
}
