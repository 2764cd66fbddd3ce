package plan

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/schedulertest"
)

func TestAssignSampler(t *testing.T) {
	consumer := make([]uint16, 8)
	Assign(make([]draw.SampleID, 8), []int32{0, 0, 1}, 2, 2, AssignSampler, nil, nil, consumer)
	if want := []uint16{0, 1, 2, 0, 1, 2, 0, 1}; !slices.Equal(consumer, want) {
		t.Errorf("consumers %v, want %v", consumer, want)
	}
}

// ownedBy returns the first n samples that a rank owns.
func ownedBy(rank, ranks, n int) []draw.SampleID {
	var ids []draw.SampleID
	for id := draw.SampleID(0); len(ids) < n; id++ {
		if draw.Owner(id, ranks) == rank {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestAssignLocalByHand: rank 0 owns four draws and has one trainer with two places; its two least
// preferred draws go to rank 1's trainer.
func TestAssignLocalByHand(t *testing.T) {
	a, b := ownedBy(0, 2, 4), ownedBy(1, 2, 4)
	prefer := map[draw.SampleID]float32{a[0]: 1, a[1]: 3, a[2]: 2, a[3]: 3}
	tests := []struct {
		name  string
		ids   []draw.SampleID
		world []int32
		size  int
		want  []uint16
	}{
		{"all at home", []draw.SampleID{a[0], b[0], b[1], a[1]}, []int32{0, 1}, 2, []uint16{0, 1, 1, 0}},
		{
			"the preferred stay",
			[]draw.SampleID{a[0], a[1], a[2], a[3]},
			[]int32{0, 1},
			2,
			[]uint16{1, 0, 1, 0},
		},
		{
			"the earlier place wins a tie",
			[]draw.SampleID{a[1], a[3], a[1], b[0]},
			[]int32{0, 1},
			2,
			[]uint16{0, 0, 1, 1},
		},
		{
			"two trainers on a rank",
			[]draw.SampleID{b[0], a[0], b[1], b[2]},
			[]int32{1, 1, 0, 0},
			1,
			[]uint16{0, 2, 1, 3},
		},
		{
			"trainers of a rank apart",
			[]draw.SampleID{b[0], a[0], b[1], a[1]},
			[]int32{1, 0, 1, 0},
			1,
			[]uint16{0, 1, 2, 3},
		},
		{
			"a rank without trainers",
			[]draw.SampleID{a[0], b[0], a[1], b[1]},
			[]int32{1, 1},
			2,
			[]uint16{1, 0, 1, 0},
		},
		{"a partial batch", []draw.SampleID{a[0], a[1], a[2]}, []int32{0, 1}, 4, []uint16{1, 0, 0}},
		{
			"a partial batch gives trainer 0 more",
			[]draw.SampleID{b[0], b[1], b[2]},
			[]int32{0, 1},
			4,
			[]uint16{1, 0, 0},
		},
		{"two batches", []draw.SampleID{a[0], b[0], b[1], b[2]}, []int32{0, 1}, 1, []uint16{0, 1, 1, 0}},
	}
	for _, tt := range tests {
		consumer := make([]uint16, len(tt.ids))
		Assign(tt.ids, tt.world, 2, tt.size, AssignLocal, nil,
			func(id draw.SampleID) float32 { return prefer[id] }, consumer)
		if !slices.Equal(consumer, tt.want) {
			t.Errorf("%s: consumers %v, want %v", tt.name, consumer, tt.want)
		}
	}
}

// TestAssignLocal checks, batch by batch, that every trainer gets its places, that as many draws as
// can stay with their owners do, and that of an owner's first few these are the preferred ones.
func TestAssignLocal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 6).Draw(t, "ranks")
		world := rapid.SliceOfN(rapid.Int32Range(0, int32(ranks)-1), 1, 9).Draw(t, "world")
		size := rapid.IntRange(1, 12).Draw(t, "batch size")
		ids := rapid.SliceOfN(
			rapid.Map(rapid.Uint32Range(0, 60), func(i uint32) draw.SampleID { return draw.SampleID(i) }),
			0, 300).Draw(t, "ids")
		likes := rapid.SliceOfN(
			rapid.SampledFrom([]float32{0, 1, 1, 2, -3, 7, float32(math.NaN())}), 61, 61,
		).Draw(t, "prefer")
		prefer := func(id draw.SampleID) float32 { return likes[id] }
		consumer := make([]uint16, len(ids))
		for i := range consumer {
			consumer[i] = math.MaxUint16
		}
		Assign(ids, world, ranks, size, AssignLocal, nil, prefer, consumer)
		again := make([]uint16, len(ids))
		Assign(ids, world, ranks, size, AssignLocal, nil, prefer, again)
		if !slices.Equal(consumer, again) {
			t.Fatal("the same arguments give other consumers")
		}
		global := size * len(world)
		for lo := 0; lo < len(ids); lo += global {
			hi := min(lo+global, len(ids))
			checkAssigned(t, ids[lo:hi], consumer[lo:hi], world, ranks, likes)
		}
	})
}

func checkAssigned(
	t *rapid.T, ids []draw.SampleID, consumer []uint16, world []int32, ranks int, likes []float32,
) {
	got := make([]int, len(world))
	for _, c := range consumer {
		if int(c) >= len(world) {
			t.Fatalf("a draw has the consumer %d of %d", c, len(world))
		}
		got[c]++
	}
	space := make([]int, ranks)
	for tr, n := range got {
		want := (len(ids) - tr + len(world) - 1) / len(world) // places j ≡ tr mod W below len(ids)
		if n != max(want, 0) {
			t.Fatalf("trainer %d of %d gets %d of %d draws", tr, len(world), n, len(ids))
		}
		space[world[tr]] += n
	}
	owned, kept, looked := make([]int, ranks), make([]int, ranks), make([]int, ranks)
	for _, id := range ids {
		owned[draw.Owner(id, ranks)]++
	}
	best := make([]float64, ranks) // the most preferred draw that left
	worst := make([]float64, ranks)
	for r := range ranks {
		best[r], worst[r] = math.Inf(-1), math.Inf(1)
	}
	for i, id := range ids {
		r := draw.Owner(id, ranks)
		like := float64(likes[id])
		if like != like {
			like = math.Inf(-1)
		}
		// those that may leave
		first := looked[r] < int(candidates(int32(owned[r]), int32(space[r])))
		looked[r]++
		switch stays := int(world[consumer[i]]) == r; {
		case stays && first:
			kept[r]++
			worst[r] = min(worst[r], like)
		case stays:
			kept[r]++
		case first:
			best[r] = max(best[r], like)
		default:
			t.Fatalf("rank %d gives away a draw that is not among the first of the %d that it owns",
				r, owned[r])
		}
	}
	for r := range ranks {
		if kept[r] != min(owned[r], space[r]) {
			t.Fatalf("rank %d owns %d draws, has %d places, and keeps %d", r, owned[r], space[r],
				kept[r])
		}
		if best[r] > worst[r] {
			t.Fatalf("rank %d gives away a draw it prefers (%v) to one it keeps (%v)", r, best[r],
				worst[r])
		}
	}
}

// TestLocalShare: of uniform draws over 4 ranks with 64 places each, 1 - E|X - 64| / 128 stay with
// their owner, X binomial (256, 1/4): about 1 - 0.4 √48 / 64 = 0.957.
func TestLocalShare(t *testing.T) {
	const samples, ranks, size = 256 * 400, 4, 64
	draws := uniformDraws(t, samples, ranks)
	world := []int32{0, 1, 2, 3}
	consumer := make([]uint16, samples)
	local := 0
	for e := range 2 {
		ids := draws(e)
		Assign(ids, world, ranks, size, AssignLocal, nil, nil, consumer)
		for i, id := range ids {
			if int(world[consumer[i]]) == draw.Owner(id, ranks) {
				local++
			}
		}
	}
	if share := float64(local) / (2 * samples); math.Abs(share-0.957) > 0.003 {
		t.Errorf("%.4f of the draws are local, want 0.957", share)
	}
}

func TestAssignMisuse(t *testing.T) {
	ids, consumer := make([]draw.SampleID, 2), make([]uint16, 2)
	schedulertest.MustPanic(t, "no trainers",
		func() { Assign(ids, nil, 1, 1, AssignLocal, nil, nil, consumer) })
	schedulertest.MustPanic(t, "too few consumers",
		func() { Assign(ids, []int32{0}, 1, 1, AssignLocal, nil, nil, consumer[:1]) })
	schedulertest.MustPanic(t, "no ranks",
		func() { Assign(ids, []int32{0}, 0, 1, AssignLocal, nil, nil, consumer) })
	schedulertest.MustPanic(t, "batch size",
		func() { Assign(ids, []int32{0}, 1, 0, AssignSampler, nil, nil, consumer) })
	schedulertest.MustPanic(t, "a trainer beyond the ranks",
		func() { Assign(ids, []int32{1}, 1, 1, AssignLocal, nil, nil, consumer) })
}

// TestAssignAllocatesOnce: memory does not grow with the number of batches.
func TestAssignAllocatesOnce(t *testing.T) {
	ids, consumer := make([]draw.SampleID, 64_000), make([]uint16, 64_000)
	for i := range ids {
		ids[i] = draw.SampleID(i)
	}
	allocations := func(n int) float64 {
		return testing.AllocsPerRun(3,
			func() { Assign(ids[:n], []int32{0, 1}, 2, 8, AssignLocal, nil, nil, consumer[:n]) })
	}
	if one, all := allocations(16), allocations(len(ids)); one != all {
		t.Errorf("%v allocations for one batch, %v for 4000", one, all)
	}
}

func TestSelectSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := rapid.SliceOfDistinct(rapid.Uint64(), rapid.ID[uint64]).Draw(t, "keys")
		n := rapid.IntRange(0, len(keys)).Draw(t, "n")
		want := slices.Sorted(slices.Values(keys))
		selectSmallest(keys, n)
		slices.Sort(keys[:n])
		slices.Sort(keys[n:])
		if !slices.Equal(keys, want) {
			t.Fatalf("the %d smallest do not come first: %v", n, keys)
		}
	})
}

// uniformDraws returns the draws of an epoch, with a batch size of 64.
func uniformDraws(t testing.TB, samples, world int) func(epoch int) []draw.SampleID {
	t.Helper()
	s, err := draw.NewSampler(draw.SamplerConfig{
		Name: "uniform", Samples: samples, BatchSize: 64, World: world,
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(epoch int) []draw.SampleID { return s.Draw(epoch, nil).IDs }
}
