package simulator

import (
	"fmt"
	"testing"
	"time"
)

func TestTry(t *testing.T) {
	losses, err := LoadLosses("../../scheduler/testdata/fashion-cnn-8k-losses.npy")
	if err != nil {
		t.Fatal(err)
	}
	tiled := Tile(losses, 8)
	for _, c := range []struct {
		ranks, batch int
		l            [][]float32
	}{{1, 64, losses}, {64, 1, losses}, {4, 64, losses}, {64, 4, tiled}, {64, 1, tiled}} {
		for _, s := range []string{"pads", "uniform", "torch", "subset"} {
			for _, capacity := range []float64{0,0.1, 0.2, 0.4, 1} {
				if len(c.l[0]) > 8000 && capacity != 0.2 {
					continue
				}
				began := time.Now()
				r, err := Run(Config{Losses: c.l, Sampler: s, Policy: "clairvoyant", Ranks: c.ranks, BatchSize: c.batch, Capacity: capacity, Seed: 1})
				if err != nil {
					t.Fatal(err)
				}
				bound := MinHits(r.IDs, len(c.l[0]), r.Capacity)
				b := 0
				for _, h := range bound[r.Begin[3]:] {
					if h {
						b++
					}
				}
				h := int64(0)
				for _, x := range r.Hits[3:] {
					h += x
				}
				fmt.Printf("%d ranks batch %d n %d %-8s %.1f: %.3f of MIN %.3f; sources %v local %.3f maxreads %d  %v\n", c.ranks, c.batch, len(c.l[0]), s, capacity, float64(h)/float64(b), float64(b)/float64(len(bound)-r.Begin[3]),
					r.Sources, float64(r.Sources[0])/float64(r.Sources[0]+r.Sources[1]), r.MaxReads, time.Since(began))
			}
		}
	}
}
