package simulator

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"rankpool/scheduler"
)

// recorded returns the first epochs of losses recorded from training.
func recorded(t *testing.T, epochs int) [][]float32 {
	t.Helper()
	losses, err := LoadLosses("../../scheduler/testdata/fashion-cnn-8k-losses.npy")
	if err != nil {
		t.Fatal(err)
	}
	return losses[:epochs]
}

// TestNoMoreHitsThanMIN has online runs stay below the offline bound, and everything be delivered as it was drawn.
func TestNoMoreHitsThanMIN(t *testing.T) {
	losses := recorded(t, 3)
	for _, sampler := range []string{"pads", "uniform", "torch", "subset"} {
		for _, ranks := range []int{1, 4} {
			for _, capacity := range []float64{0, 0.2, 1} {
				r, err := Run(Config{Losses: losses, Sampler: sampler, Policy: "clairvoyant", Ranks: ranks, BatchSize: 64 / ranks, Capacity: capacity, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				var hits, bound, delivered int64
				for _, h := range r.Hits {
					hits += h
				}
				for _, hit := range MinHits(r.IDs, len(losses[0]), r.Capacity) {
					if hit {
						bound++
					}
				}
				if hits > bound || capacity > 0 && hits < bound/2 {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN has %d", sampler, ranks, capacity, hits, bound)
				}
				if parted := PartitionHits(r.IDs, 0, len(losses[0]), ranks, r.Capacity); hits > parted || parted > bound {
					t.Errorf("%s, %d ranks, %v: %d hits, MIN in partitions has %d, MIN %d", sampler, ranks, capacity, hits, parted, bound)
				}
				for _, n := range r.Sources {
					delivered += n
				}
				if want := int64(len(r.IDs) - r.Begin[1]); delivered != want {
					t.Errorf("%s, %d ranks, %v: %d delivered of %d drawn", sampler, ranks, capacity, delivered, want)
				}
				if r.Sources[scheduler.FromFallback]+r.Sources[scheduler.NotHere]+r.Sources[scheduler.Unreadable] != 0 {
					t.Errorf("%s, %d ranks, %v: without faults, sources are %v", sampler, ranks, capacity, r.Sources)
				}
				if capacity == 1 && (r.Reads != r.Missed || r.Reads > int64(len(losses[0]))) {
					t.Errorf("%s, %d ranks: with room for all, %d reads of %d samples missed", sampler, ranks, r.Reads, r.Missed)
				}
			}
		}
	}
}

func TestRunIsDeterministic(t *testing.T) {
	cfg := Config{Losses: recorded(t, 2), Sampler: "pads", Policy: "clairvoyant", Ranks: 3, BatchSize: 16, Capacity: 0.3, Seed: 7}
	a, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Error("two runs of one configuration differ")
	}
	if a.LocalShare() < 0.5 || a.LocalShare() > 1 {
		t.Errorf("the local share is %v", a.LocalShare())
	}
}

func TestRunErrors(t *testing.T) {
	losses := [][]float32{{1, 2, 3, 4}}
	if _, err := Run(Config{Losses: losses, Sampler: "nothing", Policy: "lru", Ranks: 1, BatchSize: 2}); err == nil {
		t.Error("a sampler that does not exist was run")
	}
	if _, err := Run(Config{Losses: losses, Sampler: "uniform", Policy: "nothing", Ranks: 1, BatchSize: 2}); err == nil {
		t.Error("a policy that does not exist was run")
	}
}

// TestMinHits has traces whose best hits are found by hand.
func TestMinHits(t *testing.T) {
	for _, c := range []struct {
		trace    string
		capacity int64
		want     string // h: hit
	}{
		{"aaaa", 1, "-hhh"},
		{"aaaa", 0, "----"},
		{"abab", 1, "--h-"}, // b is not let in
		{"abcab", 2, "---hh"},
		{"abcabc", 2, "---hh-"},
		{"abcbca", 1, "---h--"},
	} {
		var ids []scheduler.SampleID
		for _, letter := range c.trace {
			ids = append(ids, scheduler.SampleID(letter-'a'))
		}
		got := ""
		for _, hit := range MinHits(ids, 26, c.capacity) {
			got += map[bool]string{true: "h", false: "-"}[hit]
		}
		if strings.Count(got, "h") != strings.Count(c.want, "h") {
			t.Errorf("%s in %d: %s, the best is %s", c.trace, c.capacity, got, c.want)
		}
	}
}

func TestTile(t *testing.T) {
	got := Tile([][]float32{{1, 2}, {3, 4}}, 2)
	if want := [][]float32{{1, 2, 1, 2}, {3, 4, 3, 4}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// smallLosses is a file with one epoch of two losses, 1 and 2.
const smallLosses = npyMagic + "\x3c\x00" + "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }" + "\n" + "\x00\x00\x80\x3f\x00\x00\x00\x40"

func FuzzParseLosses(f *testing.F) {
	file, err := os.ReadFile("../../scheduler/testdata/fashion-cnn-8k-losses.npy")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(smallLosses))
	f.Add(file[:200])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		losses, err := parseLosses(text)
		if err == nil && (len(losses) == 0 || len(losses[0]) == 0) {
			t.Error("no losses and no error")
		}
	})
}

func TestParseLosses(t *testing.T) {
	good := smallLosses
	losses, err := parseLosses([]byte(good))
	if err != nil || !reflect.DeepEqual(losses, [][]float32{{1, 2}}) {
		t.Errorf("%v, %v", losses, err)
	}
	for _, bad := range []string{"", "no magic no magic", good[:30], good[:len(good)-1], good + "x", strings.Replace(good, "<f4", "<f8", 1), strings.Replace(good, "(1, 2)", "(0, 0)", 1)} {
		if losses, err := parseLosses([]byte(bad)); err == nil {
			t.Errorf("%q was read as %v", bad, losses)
		}
	}
}
