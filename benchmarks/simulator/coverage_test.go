package simulator

import (
	"testing"

	"rankpool/scheduler/draw"
)

func TestCoverage(t *testing.T) {
	for _, c := range []struct {
		name     string
		epochs   [][]draw.SampleID // trained on
		begin    int
		gap      int
		distinct int64
	}{
		{"all in every epoch", [][]draw.SampleID{{0, 1, 2}, {2, 1, 0}}, 0, 0, 3},
		{"one never", [][]draw.SampleID{{0, 1}, {1, 0}}, 0, 2, 2},
		{"a gap in the middle", [][]draw.SampleID{{0, 1, 2}, {0, 1}, {0, 1}, {0, 1, 2}}, 0, 2, 3},
		{"a gap at the end", [][]draw.SampleID{{0, 1, 2}, {0, 1, 2}, {0, 1}}, 0, 1, 3},
		{"a gap at the beginning", [][]draw.SampleID{{0, 1}, {0, 1}, {0, 1, 2}, {0, 1, 2}}, 0, 2, 3},
		{"skipped epochs do not count", [][]draw.SampleID{{0, 1}, {2}, {0, 1}}, 2, 1, 2},
	} {
		cov := newCoverage(3, c.begin)
		for e, ids := range c.epochs {
			for _, id := range ids {
				cov.trained(e, id)
			}
		}
		if gap, n := cov.gapMax(len(c.epochs)),
			distinct([]*coverage{cov, newCoverage(3, c.begin)}); gap != c.gap || n != c.distinct {
			t.Errorf("%s: a gap of %d epochs and %d samples, want %d and %d", c.name, gap, n, c.gap,
				c.distinct)
		}
	}
}
