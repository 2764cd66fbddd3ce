package mpicache

import (
	"iter"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// pieces returns what samples are made of: window neighbouring pieces each, so that samples share
// them; and some more, out of order, so that a sample has several windows and repeats a piece.
func (c *simConfig) pieces() *plan.Pieces {
	if c.window == 0 {
		return nil
	}
	return plan.NewPieces(plan.Pieces{
		Samples: c.samples, Count: c.samples + c.window - 1, Block: 2 * c.window,
		Windows: func(s draw.SampleID) iter.Seq2[draw.SampleID, int] {
			return func(yield func(draw.SampleID, int) bool) {
				if yield(s, c.window) && s%5 == 4 {
					yield(s/2, 2)
				}
			}
		},
		Size: sampleSize,
	})
}

// rows returns what a trainer's part of a batch is served as, by the rule and not by a plan: each
// piece once, in the order in which samples need them.
func (c *simConfig) rows(part []uint32) (rows []uint32) {
	if c.window == 0 {
		return part
	}
	add := func(first uint32, n int) {
		for i := range uint32(n) {
			if !slices.Contains(rows, first+i) {
				rows = append(rows, first+i)
			}
		}
	}
	for _, s := range part {
		add(s, c.window)
		if s%5 == 4 {
			add(s/2, 2)
		}
	}
	return rows
}

// TestJobsOfPieces simulates jobs whose samples are made of shared pieces, with all samplers, with
// orders that are handed in, and with faults.
func TestJobsOfPieces(t *testing.T) {
	jobs := 60
	if testing.Short() {
		jobs = 20
	}
	for seed := range uint64(jobs) {
		j := simulateWith(seed, "", false, func(c *simConfig) {
			c.window = 1 + int(seed)%4
			c.partition = c.partition * int64(c.window+2) / 3
			if seed%3 == 0 {
				c.sampler = draw.InList
			}
		})
		if j.violation != "" {
			t.Fatalf("job %d: %s", seed, j.violation)
		}
	}
}

// TestFlawsOfPieces plants faults into such jobs: each is found.
func TestFlawsOfPieces(t *testing.T) {
	for _, flaw := range []string{
		"a lease ends early", "recovered memory is not verified", "a byte flips between nodes",
	} {
		found := false
		for seed := uint64(0); seed < 60 && !found; seed++ {
			j := simulateWith(seed, flaw, false, func(c *simConfig) { c.window = 3 })
			found = j.violation != ""
		}
		if !found {
			t.Errorf("%s: not found", flaw)
		}
	}
}
