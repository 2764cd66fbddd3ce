package plan

import (
	"iter"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
)

// windows returns the pieces of samples that are made of rows neighbouring ones.
func windows(samples, rows, block int) *Pieces {
	return NewPieces(Pieces{
		Samples: samples, Count: samples + rows - 1, Block: block,
		Windows: func(s draw.SampleID) iter.Seq2[draw.SampleID, int] {
			return func(yield func(draw.SampleID, int) bool) { yield(s, rows) }
		},
		Size: func(draw.SampleID) int64 { return 1 },
	})
}

// lists returns the pieces of samples that are listed one by one.
func lists(count int, samples ...[]draw.SampleID) *Pieces {
	return NewPieces(Pieces{
		Samples: len(samples), Count: count, Block: 1,
		Windows: func(s draw.SampleID) iter.Seq2[draw.SampleID, int] {
			return func(yield func(draw.SampleID, int) bool) {
				for _, id := range samples[s] {
					if !yield(id, 1) {
						return
					}
				}
			}
		},
		Size: func(draw.SampleID) int64 { return 1 },
	})
}

// TestPartsOfPieces: a trainer's part of a global batch has each piece of its samples once, in the
// order in which they first come; a sample of fill values has none.
func TestPartsOfPieces(t *testing.T) {
	pieces := lists(6, []draw.SampleID{0, 1}, []draw.SampleID{1, 2}, nil, []draw.SampleID{5, 0, 5})
	p := New(Config{
		Sampler: draw.Listed([]draw.SampleID{1, 0, 3, 2, 0}), Samples: 4, BatchSize: 2,
		World: []int32{0, 0}, Ranks: 1, Pieces: pieces, Assignment: AssignSampler,
	}, 0, nil)
	q := p.Held()
	for _, tt := range []struct {
		batch, trainer int
		want           []draw.SampleID
	}{
		{0, 0, []draw.SampleID{1, 2, 5, 0}},
		{0, 1, []draw.SampleID{0, 1}},
		{1, 0, []draw.SampleID{0, 1}},
		{1, 1, nil},
	} {
		if got := q.Part(tt.batch, tt.trainer); !slices.Equal(got, tt.want) {
			t.Errorf("batch %d of trainer %d: %v, want %v", tt.batch, tt.trainer, got, tt.want)
		}
		if got := pieces.PiecesOf(p.Part(tt.batch, tt.trainer)); !slices.Equal(got, tt.want) {
			t.Errorf("batch %d of trainer %d: PiecesOf is %v, want %v", tt.batch, tt.trainer, got,
				tt.want)
		}
	}
	if q.Batches() != p.Batches() {
		t.Errorf("%d batches, want %d", q.Batches(), p.Batches())
	}
}

// TestSamplesOfPieces: the table has the samples that a piece is part of, and no others.
func TestSamplesOfPieces(t *testing.T) {
	for _, pieces := range []*Pieces{
		windows(40, 3, 1),
		lists(6, []draw.SampleID{5, 1}, nil, []draw.SampleID{1, 2}, []draw.SampleID{4, 0, 5}),
	} {
		for piece := range draw.SampleID(pieces.Count) {
			var want []draw.SampleID
			for s := range draw.SampleID(pieces.Samples) {
				if slices.Contains(slices.Collect(pieces.Of(s)), piece) {
					want = append(want, s)
				}
			}
			if got := pieces.using(piece); !slices.Equal(got, want) {
				t.Errorf("piece %d is part of %v, want %v", piece, got, want)
			}
		}
	}
}

// TestPiecesStayLocal: of windows of 8 rows over 4 ranks, 64 samples a trainer, nearly all bytes
// are consumed where they may be kept.
func TestPiecesStayLocal(t *testing.T) {
	const samples, ranks = 60_000, 4
	sampler, err := draw.NewSampler(draw.SamplerConfig{
		Name: "uniform", Samples: samples, Seed: 3, BatchSize: 64 * ranks, World: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := New(Config{
		Sampler: sampler, Samples: samples, BatchSize: 64, World: []int32{0, 1, 2, 3}, Ranks: ranks,
		Pieces: windows(samples, 8, 64),
	}, 0, nil).Held()
	local := 0
	for i := range p.IDs {
		if p.Owner(i) == int(p.World[p.Consumer[i]]) {
			local++
		}
	}
	if share := float64(local) / float64(len(p.IDs)); share < 0.85 {
		t.Errorf("%.3f of the bytes are local, want at least 0.85", share)
	}
}
