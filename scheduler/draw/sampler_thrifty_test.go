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

// TestThriftyIsUnbiased checks that the weights of each sample sum to the epochs that have passed,
// but for what it is owed at the end, and got too early at the beginning, however scores change;
// and where they do not, that the mean of the weighted gradients of a linear model, over seeds, is
// that over all samples, within four standard errors and what is owed.
func TestThriftyIsUnbiased(t *testing.T) {
	const seeds, samples, epochs, warmUp = 4, 2000, 60, 20
	for _, change := range []int{0, 700} {
		gradient := func(id SampleID, epoch int) float32 {
			return float32((int(id)*7+epoch/9*change)%samples) / samples
		}
		sum, squares := 0.0, 0.0
		for seed := range int64(seeds) {
			s, state := newThrifty(t, seed, 0.25), []byte(nil)
			paid, got, want := make([]float64, samples), 0.0, 0.0
			for epoch := range epochs {
				if err := s.Resume(state); err != nil {
					t.Fatal(err)
				}
				scores := make([]float32, samples)
				for id := range SampleID(samples) {
					scores[id] = gradient(id, epoch)
				}
				d := s.Draw(epoch, scores)
				for i, id := range d.IDs {
					paid[id] += float64(d.WeightAt(i))
					if epoch >= warmUp {
						got += float64(d.WeightAt(i)) * float64(scores[id]) / float64(len(d.IDs))
						want += float64(scores[i]) / samples
					}
				}
				state = d.After()
			}
			for id, w := range paid {
				if owed := epochs - w; math.Abs(owed) > ThriftyGap+2 {
					t.Errorf("the weights of sample %d sum to %v in %d epochs", id, w, epochs)
				}
			}
			sum += got / want
			squares += float64(got / want * (got / want))
		}
		mean := sum / seeds
		deviation := math.Sqrt(max(squares/seeds-mean*mean, 0) / (seeds - 1))
		t.Logf("mean gradient / that of all samples: %.4f ± %.4f", mean, deviation)
		const owed = 0.01
		if change == 0 && math.Abs(mean-1) > 4*deviation+owed {
			t.Errorf("the mean gradient is %v ± %v of that over all samples", mean, deviation)
		}
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
	for _, wrong := range [][]byte{end[4:], end[:len(end)-1]} { // the second as format 1 was
		if err := newThrifty(t, 3, 0.25).Resume(wrong); err == nil {
			t.Errorf("a state of %d bytes is accepted, not of %d", len(wrong), len(end))
		}
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
// epoch, for all but a few that are then read sooner or later, because the pace changes.
func TestThriftyForecast(t *testing.T) {
	all, _ := drawn(t, newThrifty(t, 5, 0.25), nil, 0, 12)
	next, scores, seen, wrong := all[11], unevenScores(), map[SampleID]bool{}, 0
	for i, id := range next.IDs {
		want := 11 + float64(i)/float64(len(next.IDs))
		if got := all[10].Next(id, scores[id]); !seen[id] && math.Abs(got-want) > 0.1 {
			wrong++
		}
		seen[id] = true
	}
	if wrong > len(seen)/50 {
		t.Errorf("Next is wrong for %d of %d samples", wrong, len(seen))
	}
}
