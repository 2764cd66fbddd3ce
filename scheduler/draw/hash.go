package draw

// golden is 2^64 divided by the golden ratio, odd: the step that spreads counters before they are
// mixed.
const golden = 0x9e3779b97f4a7c15

// mix is a bijection of 64-bit words in which every input bit flips every output bit with
// probability near 1/2.
//
// Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, Figure
// 11 (mix64); the constants are Stafford's variant 13 of MurmurHash3's finaliser.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A purpose keeps the random numbers of one use apart from those of another.
type purpose uint64

const (
	forClock      purpose = 1 + iota // when a sample is drawn
	forMembership                    // whether a sample is in the subset
)

// A source is the random numbers of one (seed, purpose), for all epochs.
type source uint64

func newSource(seed int64, p purpose) source {
	return source(mix(mix(uint64(seed)+golden) + uint64(p)))
}

// A stream is the random numbers of one (seed, purpose, epoch). It has no state: any number of any
// sample can be asked for at any time, on any machine, and is always the same.
type stream uint64

func (s source) epoch(epoch int) stream {
	return stream(mix(uint64(s) + golden*(uint64(epoch)+1)))
}

// bits returns random number k of a sample, 64 uniform bits.
func (s stream) bits(id SampleID, k uint32) uint64 {
	return mix(uint64(s) ^ mix(uint64(id)<<32|uint64(k)+golden))
}
