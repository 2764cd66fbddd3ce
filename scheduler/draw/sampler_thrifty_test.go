package draw

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

func newThrifty(t *testing.T, seed int64, reads float64) Resumer {
	t.Helper()
	return mustSampler(t, SamplerConfig{
		Name: Thrifty, Samples: 2000, Seed: seed, BatchSize: 10, World: 4, Reads: reads, Room: 0.2,
	}).(Resumer)
}

// unevenScores are 1 to 5, so that the least is above the floor.
func unevenScores() []float32 {
	scores := make([]float32, 2000)
	for i := range scores {
		scores[i] = 1 + float32(i%5)
	}
	return scores
}

// drawn returns the draws of the epochs from first on, and the state after them.
func drawn(t *testing.T, s Resumer, state []byte, first, epochs int) ([]*Draws, []byte) {
	t.Helper()
	var all []*Draws
	for e := range epochs {
		if err := s.Resume(state); err != nil {
			t.Fatal(err)
		}
		all = append(all, s.Draw(first+e, unevenScores()))
		state = all[e].After()
	}
	return all, state
}

// TestThriftyIsUnbiased checks that the weighted mean of the gradients of a linear model, over
// seeds, is that over all samples, within four standard errors, where ages are chosen against it:
// those with the largest gradients are in the store.
func TestThriftyIsUnbiased(t *testing.T) {
	const seeds, samples = 60, 2000
	gradient := func(id SampleID) float64 { return float64(id) - float64(id)*float64(id%5) }
	want := 0.0
	ages := make([]float32, samples)
	for id := range SampleID(samples) {
		want += gradient(id) / samples
		ages[id] = 3
		if id > samples*4/5 {
			ages[id] = 0.01
		}
	}
	sum, squares := 0.0, 0.0
	for seed := range int64(seeds) {
		s := newThrifty(t, seed, 0.25)
		_, state := drawn(t, s, nil, 0, 1)
		copy(state[8:], thriftyState(0, ages)[8:])
		all, _ := drawn(t, s, state, 1, 1)
		mean := 0.0
		for i, id := range all[0].IDs {
			mean += float64(all[0].WeightAt(i)) * gradient(id) / float64(len(all[0].IDs))
		}
		sum += mean
		squares += mean * mean
	}
	mean := sum / seeds
	deviation := math.Sqrt((squares/seeds - mean*mean) / (seeds - 1))
	if math.Abs(mean-want) > 4*deviation {
		t.Errorf("the mean gradient is %v ± %v, want %v", mean, deviation, want)
	}
}

// TestThriftyReads checks that a store which knows the future reads at most as often as was asked
// for, and no sample is undrawn for more than 5 epochs.
func TestThriftyReads(t *testing.T) {
	const samples, room, burn, epochs = 2000, 0.2, 4, 24
	for _, reads := range []float64{0.25, 0.35} {
		all, _ := drawn(t, newThrifty(t, 1, reads), nil, 0, epochs)
		last, epochOf, now, draws := make([]float64, samples), make([]int, samples), 0.0, 0
		var gaps []float64
		for e, d := range all {
			for _, id := range d.IDs {
				now++
				if e >= burn {
					gaps = append(gaps, now-last[id])
					draws++
				}
				if e-epochOf[id]-1 > 5 {
					t.Errorf("sample %d is undrawn from epoch %d to %d", id, epochOf[id], e)
				}
				last[id], epochOf[id] = now, e
			}
		}
		slices.Sort(gaps) // the store keeps what is drawn again soonest
		hits, kept := 0, 0.0
		for kept < room*samples*float64(draws) {
			kept += gaps[hits]
			hits++
		}
		if got := 1 - float64(hits)/float64(draws); got > reads+0.01 || got < reads-0.05 {
			t.Errorf("%v reads a draw, want at most %v", got, reads)
		}
	}
}

// TestThriftyEnds checks that with one read a draw thrifty is uniform, that it resumes in any epoch
// and from no other state, and that a short epoch has its share of the draws.
func TestThriftyEnds(t *testing.T) {
	uniform := mustSampler(t, SamplerConfig{
		Name: "uniform", Samples: 2000, Seed: 3, BatchSize: 10, World: 4,
	})
	d := newThrifty(t, 3, 1).Draw(2, nil)
	if !slices.Equal(d.IDs, uniform.Draw(2, nil).IDs) || d.Weighted() {
		t.Error("with one read a draw, thrifty is not uniform")
	}
	all, end := drawn(t, newThrifty(t, 3, 0.25), nil, 0, 4)
	again, endAgain := drawn(t, newThrifty(t, 3, 0.25), all[1].After(), 2, 2)
	for i, d := range again {
		if !slices.Equal(d.IDs, all[2+i].IDs) || !slices.Equal(d.weights, all[2+i].weights) {
			t.Errorf("epoch %d is drawn otherwise after resuming", 2+i)
		}
	}
	if !bytes.Equal(end, endAgain) {
		t.Error("the state is another after resuming")
	}
	if err := newThrifty(t, 3, 0.25).Resume(end[4:]); err == nil {
		t.Error("a damaged state is accepted")
	}
	short := mustSampler(t, SamplerConfig{
		Name: Thrifty, Samples: 2000, Seed: 3, BatchSize: 10, World: 4, Fraction: 0.7,
	}).(Resumer)
	all, _ = drawn(t, short, nil, 0, 2)
	if len(all[1].IDs) != 1400 {
		t.Errorf("an epoch of a share of 0.7 has %d draws of 2000 samples", len(all[1].IDs))
	}
}

// TestThriftyForecast checks that Next is about the place of a sample's first draw of the next
// epoch, whose length in time varies.
func TestThriftyForecast(t *testing.T) {
	all, _ := drawn(t, newThrifty(t, 5, 0.25), nil, 0, 12)
	next, scores, seen := all[11], unevenScores(), map[SampleID]bool{}
	for i, id := range next.IDs {
		want := 11 + float64(i)/float64(len(next.IDs))
		if got := all[10].Next(id, scores[id]); !seen[id] && math.Abs(got-want) > 0.15 {
			t.Fatalf("sample %d: Next is %v, its draw is at %v", id, got, want)
		}
		seen[id] = true
	}
}
