package stager

import (
	"iter"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// shared returns the pieces of samples that are windows of rows, where each piece has a number of
// rows.
func shared(samples, rows, perPiece, block int) plan.Pieces {
	return plan.Pieces{
		Samples: samples, Count: (samples+rows-2)/perPiece + 1, Block: block,
		Windows: func(s draw.SampleID) iter.Seq2[draw.SampleID, int] {
			return func(yield func(draw.SampleID, int) bool) {
				first, last := int(s)/perPiece, (int(s)+rows-1)/perPiece
				yield(draw.SampleID(first), last-first+1)
			}
		},
		Size: func(draw.SampleID) int64 { return 1 },
	}
}

// TestReadsOfSharedPieces compares what an epoch reads at 20 % memory with Bélády's MIN on the same
// pieces, which reads 1.53, 3.77 and 2.02 data sets. An LRU cache reads 2.56, 6.51 and 3.37.
func TestReadsOfSharedPieces(t *testing.T) {
	for _, tt := range []struct {
		rows, perPiece int
		most           float64 // data sets read in an epoch
	}{{3, 1, 1.56}, {8, 1, 3.9}, {1, 4, 2.05}} {
		const samples, batch, epochs = 6_000, 64, 5
		for _, sampler := range []string{"uniform", "torch", "pads"} {
			pieces := plan.NewPieces(shared(samples, tt.rows, tt.perPiece, 1))
			ids, hit, warm := drivePieces(t, sampler, pieces, batch, epochs, nextOfAny)
			capacity := int64(pieces.Count / 5)
			reads, best := misses(hit[warm:]), misses(minHits(ids, capacity)[warm:])
			of := float64(pieces.Count) * (epochs - 2)
			if sampler != "pads" && reads/of > tt.most {
				t.Errorf("%s, windows of %d rows, %d a piece: reads %.3f data sets an epoch, MIN %.3f",
					sampler, tt.rows, tt.perPiece, reads/of, best/of)
			}
			if reads > 1.02*best {
				t.Errorf("%s, windows of %d rows, %d a piece: reads %.4f of MIN's", sampler, tt.rows,
					tt.perPiece, reads/best)
			}
		}
	}
}

// TestNextUseOfPieces plants a fault: a piece is expected when the first of its samples is drawn,
// and not when any is. More is read.
func TestNextUseOfPieces(t *testing.T) {
	pieces := plan.NewPieces(shared(12_000, 1, 4, 1))
	reads := func(of nextOf) float64 {
		_, hit, warm := drivePieces(t, "torch", pieces, 64, 5, of)
		return misses(hit[warm:])
	}
	first := func(p *plan.Plan, piece draw.SampleID) float64 {
		return p.Next(4*piece, 1)
	}
	if right, flawed := reads(nextOfAny), reads(first); flawed < 1.02*right {
		t.Errorf("%v reads, and %v with the fault", right, flawed)
	}
}

// A nextOf predicts the use of a piece after the epoch of a plan of samples.
type nextOf func(p *plan.Plan, piece draw.SampleID) float64

func nextOfAny(p *plan.Plan, piece draw.SampleID) float64 { return p.Held().Next(piece, 1) }

func misses(hit []bool) (n float64) {
	for _, h := range hit {
		if !h {
			n++
		}
	}
	return n
}

// drivePieces runs epochs on one partition for 20 % of the pieces, and returns all draws of pieces
// with their outcomes, and where the third epoch begins.
func drivePieces(
	t *testing.T, sampler string, pieces *plan.Pieces, batch, epochs int, predict nextOf,
) (ids []draw.SampleID, hit []bool, warm int) {
	t.Helper()
	s, err := draw.NewSampler(draw.SamplerConfig{
		Name: sampler, Samples: pieces.Samples, Seed: 1, BatchSize: batch, World: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := NewCache(NewClairvoyant(), int64(pieces.Count/5), pieces.Size)
	var scores []float32
	if s.Weighted() {
		scores = make([]float32, pieces.Samples)
		for i := range scores {
			scores[i] = float32(1 + i%7)
		}
	}
	pieces.Scores = scores
	for epoch := range epochs {
		if epoch == 2 {
			warm = len(ids)
		}
		drawn := plan.New(plan.Config{
			Sampler: s, Samples: pieces.Samples, BatchSize: batch, World: []int32{0}, Ranks: 1,
			Pieces: pieces,
		}, epoch, scores)
		p := drawn.Held()
		next, first := nextPlaces(p.IDs, pieces.Count)
		use := func(id draw.SampleID, place int32) Use {
			if place >= 0 {
				return Use{ID: id, Next: p.Time(place)}
			}
			return Use{ID: id, Next: predict(drawn, id)}
		}
		c.RefreshAll(func(id draw.SampleID, _ float64) Use { return use(id, first[id]) })
		for i, id := range p.IDs {
			ids = append(ids, id)
			hit = append(hit, c.Draw(use(id, next[i]), func(draw.SampleID) {}) == Hit)
		}
	}
	return ids, hit, warm
}
