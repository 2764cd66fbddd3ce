package plan

import (
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
)

// TestNewList checks what a trainer may hand in.
func TestNewList(t *testing.T) {
	for name, c := range map[string]struct {
		numbers []draw.SampleID
		want    string // part of the error; "": none
	}{
		"two batches":      {[]draw.SampleID{2, 2, 1, 4, 4, 9}, ""},
		"no batch":         {[]draw.SampleID{0}, ""},
		"an empty batch":   {[]draw.SampleID{2, 1, 0, 4}, "batch 1 has no samples"},
		"too few lengths":  {[]draw.SampleID{3, 1}, "a list of 3 batches has the lengths of 1"},
		"too few ids":      {[]draw.SampleID{1, 3, 1, 2}, "batches have 3 samples has 2 ids"},
		"too many ids":     {[]draw.SampleID{1, 1, 1, 2}, "batches have 1 samples has 2 ids"},
		"ids after none":   {[]draw.SampleID{0, 1}, "batches have 0 samples has 1 ids"},
		"an unknown id":    {[]draw.SampleID{2, 1, 2, 1, 2, 10}, "batch 1 has sample 10, and the data"},
		"lengths overflow": {[]draw.SampleID{2, 1 << 31, 1 << 31, 1}, "batches have 4294967296 samples"},
	} {
		l, err := NewList(c.numbers, 10)
		switch {
		case c.want == "" && err != nil, c.want != "" && err == nil,
			err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		case err == nil && !slices.Equal(l.Numbers(), c.numbers):
			t.Errorf("%s: the list has %v", name, l.Numbers())
		}
	}
}

func mustList(t *testing.T, batches ...[]draw.SampleID) List {
	t.Helper()
	l := List{Counts: []int32{}}
	for _, ids := range batches {
		l.Counts = append(l.Counts, int32(len(ids)))
		l.IDs = append(l.IDs, ids...)
	}
	return l
}

// TestPlanOfLists checks that each trainer gets what it has handed in, or with AssignLocal as much.
func TestPlanOfLists(t *testing.T) {
	type batches = [][]draw.SampleID
	for name, parts := range map[string][]batches{
		"equal":          {{{0, 1}, {2, 3}}, {{4, 5}, {6, 7}}},
		"other lengths":  {{{0}, {1, 2, 3, 4}, {5}}, {{6, 7, 8}, {9}}},
		"an empty part":  {{}, {{3}, {3, 3}}},
		"no draws":       {{}, {}},
		"repeated ids":   {{{1, 1}, {1}}, {{1}, {1, 2}}},
		"one has fewer":  {{{0}}, {{1}, {2}, {3}, {4, 5, 6}}},
		"one is the job": {{{9, 8, 7}, {6}}},
	} {
		var lists []List
		world := []int32{0, 1}[:len(parts)]
		for _, p := range parts {
			lists = append(lists, mustList(t, p...))
		}
		for _, mode := range []Assignment{AssignSampler, AssignLocal} {
			p := New(Config{
				Samples: 10, World: world, Ranks: 2, Assignment: mode,
				Lists: lists,
			}, 3, nil)
			checkPlanOfLists(t, name, p, lists, mode)
		}
	}
}

func checkPlanOfLists(t *testing.T, name string, p *Plan, lists []List, mode Assignment) {
	t.Helper()
	next := make([]int, len(lists))
	for b := range p.Batches() + 1 {
		var all, want []draw.SampleID
		for trainer := range lists {
			n := lists[trainer].count(b)
			own := lists[trainer].IDs[next[trainer]:][:n]
			next[trainer] += n
			part := p.Part(b, trainer)
			if len(part) != n || mode == AssignSampler && !slices.Equal(part, own) {
				t.Errorf("%s, mode %d: trainer %d gets %v in batch %d, and handed in %v", name, mode,
					trainer, part, b, own)
			}
			all, want = append(all, part...), append(want, own...)
		}
		slices.Sort(all)
		slices.Sort(want)
		if !slices.Equal(all, want) {
			t.Errorf("%s, mode %d: batch %d has %v, want %v", name, mode, b, all, want)
		}
		lo, hi := p.Range(b)
		for i := lo; i < hi; i++ {
			if p.BatchOf(i) != b {
				t.Errorf("%s: draw %d is in batch %d, want %d", name, i, p.BatchOf(i), b)
			}
		}
	}
	if lo, _ := p.Range(p.Batches()); lo != len(p.IDs) {
		t.Errorf("%s: the batches end at draw %d of %d", name, lo, len(p.IDs))
	}
}
