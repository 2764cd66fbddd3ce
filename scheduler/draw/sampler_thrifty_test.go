package draw

import (
	"bytes"
	"math"
	"math/rand/v2"
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
// for, or, if that is less than what samples can wait for, little more than that, and no sample is
// undrawn for more than 5 epochs.
func TestThriftyReads(t *testing.T) {
	const samples, room, burn, epochs = 2000, 0.2, 4, 24
	for _, reads := range []float64{0.05, 0.16, 0.25, 0.35} {
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
		want := max(reads, (1-thriftyShare*room)/thriftyWait)
		if got := 1 - float64(hits)/float64(draws); got > want+0.01 || got < want-0.05 {
			t.Errorf("%v reads a draw, want at most %v", got, want)
		}
	}
}

// TestThriftyResumesAfterAnyEpoch checks that rounding never makes a state that cannot be resumed:
// with some of the seeds the end of an epoch was before its last draw.
func TestThriftyResumesAfterAnyEpoch(t *testing.T) {
	for seed := range int64(100) {
		for _, share := range []float64{0.7, 1} {
			s := mustSampler(t, SamplerConfig{
				Name: Thrifty, Samples: 2000, Seed: seed, BatchSize: 16, World: 1, Fraction: share,
			})
			drawn(t, s.(Resumer), nil, 0, 4)
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

// TestThriftyAuto checks that with AutoReads the gradient becomes about as steady as with uniform
// draws, and with fewer reads if scores differ.
func TestThriftyAuto(t *testing.T) {
	reads := func(power float64) float64 {
		scores := make([]float32, 2000)
		for i := range scores {
			scores[i] = float32(math.Pow(float64(1+i%5), power))
		}
		s, sum, n := newThrifty(t, 2, AutoReads).(*thriftySampler), 0.0, 0.0
		for epoch := range 30 {
			d := s.Draw(epoch, scores)
			if epoch >= 15 {
				sum, n = sum+d.Variance(scores), n+1
			}
			if err := s.Resume(d.After()); err != nil {
				t.Fatal(err)
			}
		}
		if mean := sum / n; math.Abs(mean-1) > 0.1 {
			t.Errorf("scores to the power of %v: the variance is %v of that of uniform draws", power, mean)
		}
		return s.reads
	}
	equal, uneven := reads(0), reads(1)
	t.Logf("%.3f reads a draw with equal scores, %.3f with uneven ones", equal, uneven)
	if equal > 0.5 || uneven > 0.9*equal {
		t.Errorf("%v reads a draw with equal scores, %v with uneven ones", equal, uneven)
	}
}

// TestVariance checks the variance of the mean gradient of an epoch against gradients in random
// directions, for which it is about 1 with uniform draws with replacement.
func TestVariance(t *testing.T) {
	const samples, directions = 2000, 2000
	scores, random := unevenScores(), rand.New(rand.NewPCG(1, 2))
	thrifty, _ := drawn(t, newThrifty(t, 7, 0.25), nil, 0, 6)
	uniform := &Draws{IDs: make([]SampleID, samples), forecast: thrifty[0].forecast}
	for i := range uniform.IDs {
		uniform.IDs[i] = SampleID(random.IntN(samples))
	}
	for i, d := range []*Draws{uniform, thrifty[5]} {
		off, all := 0.0, 0.0 // squares: by which the weighted sum is off, and of the gradients
		for range directions {
			signed, sum := make([]float64, samples), 0.0
			for id, g := range scores {
				signed[id] = float64(g) * float64(2*random.IntN(2)-1)
				sum -= signed[id]
				all += float64(signed[id] * signed[id])
			}
			for i, id := range d.IDs {
				sum += float64(d.WeightAt(i)) * signed[id]
			}
			off += sum * sum
		}
		got, want := d.Variance(scores), off/all
		// four standard errors of a mean square
		if math.Abs(got/want-1) > 4*math.Sqrt(2./directions) || i == 0 && math.Abs(got-1) > 0.2 {
			t.Errorf("draws %d: the variance is %v, measured %v", i, got, want)
		}
	}
	if v := thrifty[0].Variance(scores); v > 0.05 {
		t.Errorf("the first epoch, a permutation, has a variance of %v", v)
	}
}
