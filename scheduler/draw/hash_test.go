package draw

import (
	"math"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// TestBitsAvalanche flips each bit of each input of the hash: every output bit must change half of
// the time.
func TestBitsAvalanche(t *testing.T) {
	hash := func(seed, epoch, id, k uint64) uint64 {
		return newSource(int64(seed), forClock).epoch(int(epoch)).bits(SampleID(id), uint32(k))
	}
	inputs := []struct {
		name string
		bits int
		flip func(in [4]uint64, bit int) [4]uint64
	}{
		{"seed", 64, func(in [4]uint64, b int) [4]uint64 { in[0] ^= 1 << b; return in }},
		{"epoch", 32, func(in [4]uint64, b int) [4]uint64 { in[1] ^= 1 << b; return in }},
		{"sample", 32, func(in [4]uint64, b int) [4]uint64 { in[2] ^= 1 << b; return in }},
		{"k", 32, func(in [4]uint64, b int) [4]uint64 { in[3] ^= 1 << b; return in }},
	}
	const trials = 2000
	for _, input := range inputs {
		for b := range input.bits {
			var changed [64]int
			for i := range uint64(trials) {
				in := [4]uint64{i % 5, i % 7, i, i % 3} // small numbers, as they are in practice
				out := input.flip(in, b)
				diff := hash(in[0], in[1], in[2], in[3]) ^ hash(out[0], out[1], out[2], out[3])
				for ; diff != 0; diff &= diff - 1 {
					changed[bits.TrailingZeros64(diff)]++
				}
			}
			for o, n := range changed { // 6 standard deviations
				if math.Abs(float64(n)-trials/2) > 6*math.Sqrt(trials)/2 {
					t.Errorf("bit %d of %s changes bit %d of the hash in %d of %d trials", b,
						input.name, o, n, trials)
				}
			}
		}
	}
}

func TestPurposesDiffer(t *testing.T) {
	const n = 10000
	clock, member := newSource(3, forClock).epoch(4), newSource(3, forMembership).epoch(4)
	product := 0.0
	for id := range SampleID(n) {
		product += (uniform(clock.bits(id, 0)) - 0.5) * (uniform(member.bits(id, 0)) - 0.5) * 12
	}
	if r := product / n; math.Abs(r) > 5/math.Sqrt(n) {
		t.Errorf("clocks and memberships have the correlation %.3f", r)
	}
}

// TestBitsGolden pins the hash: a different hash would change every plan.
func TestBitsGolden(t *testing.T) {
	tests := []struct {
		seed  int64
		epoch int
		id    SampleID
		k     uint32
		want  uint64
	}{
		{0, 0, 0, 0, 0x91d47df2b35a32b2},
		{1, 0, 0, 0, 0x1e9fe410bc97c37d},
		{-1, 7, 14_200_000, 3, 0x73e0407ff9a16962},
		{math.MaxInt64, 1 << 20, math.MaxUint32, math.MaxUint32, 0xdf96f5f8aad2d5fe},
	}
	for _, tt := range tests {
		if got := newSource(tt.seed, forClock).epoch(tt.epoch).bits(tt.id, tt.k); got != tt.want {
			t.Errorf("random number %d of sample %d, seed %d, epoch %d: %#016x, want %#016x",
				tt.k, tt.id, tt.seed, tt.epoch, got, tt.want)
		}
	}
}

// TestOwnerGolden pins the function, which must never change.
func TestOwnerGolden(t *testing.T) {
	for _, tt := range []struct {
		ranks int
		want  [12]int
	}{
		{1, [12]int{}},
		{2, [12]int{1, 0, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0}},
		{5, [12]int{2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 4, 0}},
	} {
		var got [12]int
		for id := range SampleID(12) {
			got[id] = Owner(id, tt.ranks)
		}
		if got != tt.want {
			t.Errorf("%d ranks: owners %v, want %v", tt.ranks, got, tt.want)
		}
	}
	if got := Owner(1<<32-1, 1000); got != 482 {
		t.Errorf("the last id has the owner %d", got)
	}
}

func TestOwnerBalanced(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 40).Draw(t, "ranks")
		samples := rapid.IntRange(0, 2000).Draw(t, "samples")
		count := make([]int, ranks)
		for id := range SampleID(samples) {
			count[Owner(id, ranks)]++
		}
		for r, n := range count {
			if n < samples/ranks || n > (samples+ranks-1)/ranks {
				t.Fatalf("rank %d of %d owns %d of %d samples", r, ranks, n, samples)
			}
		}
	})
}

// TestOwnerMixed: samples at any regular stride are spread, too.
func TestOwnerMixed(t *testing.T) {
	const ranks, draws = 8, 8000
	for _, stride := range []int{1, 2, 3, 8, 16, 64, 1000} {
		var count [ranks]int
		for i := range draws {
			count[Owner(SampleID(i*stride), ranks)]++
		}
		for r, n := range count {
			if n < 850 || n > 1150 { // 1000 ± 5 standard deviations
				t.Errorf("of every %d. sample rank %d owns %d of %d", stride, r, n, draws)
			}
		}
	}
}
