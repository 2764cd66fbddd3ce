package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"rankpool/mpicache/stats"
)

func sorted(ids []uint32) []uint32 { return slices.Sorted(slices.Values(ids)) }

// TestStreamIsTheSame checks the promise: the same global batches for any number of ranks and any
// memory.
func TestStreamIsTheSame(t *testing.T) {
	for _, sampler := range []string{"uniform", "pads"} {
		var first []string
		for _, c := range []struct {
			ranks, world, batch int
			capacityBytes       int64
		}{{1, 1, 12, 0}, {1, 2, 6, 1 << 20}, {2, 2, 6, 2000}, {4, 4, 3, 5000}, {3, 6, 2, 1 << 20}} {
			t.Run(fmt.Sprintf("%s/%d-ranks-%d-bytes", sampler, c.ranks, c.capacityBytes),
				func(t *testing.T) {
					cl := newCluster(t, c.ranks, 240, c.capacityBytes, patient)
					stream := cl.train(c.world, c.batch, 3, sampler)
					cl.close()
					if first == nil {
						first = stream
					}
					if !slices.Equal(stream, first) {
						t.Errorf("the stream differs from that of one rank without memory")
					}
					cl.checkRecords(3, 240)
				})
		}
	}
}

// checkRecords checks the run log's lines against each other.
func (c *cluster) checkRecords(epochs, draws int) {
	c.t.Helper()
	if len(c.records) != epochs+1 {
		c.t.Fatalf("%d lines in the run log, want %d: %+v", len(c.records), epochs+1, c.records)
	}
	for i, r := range c.records[:epochs] {
		e := r.(stats.Epoch)
		if e.Epoch != i || e.Draws() != float64(draws) || e.Sums[stats.FallbackReads] != 0 {
			c.t.Errorf("line %d: %+v", i, e)
		}
	}
	text, err := json.Marshal(c.records[epochs])
	var summary struct {
		Event         string
		Draws, Epochs int
	}
	if err = errors.Join(err, json.Unmarshal(text, &summary)); err != nil {
		c.t.Fatal(err)
	}
	if summary.Event != "summary" || summary.Draws != epochs*draws || summary.Epochs != epochs {
		c.t.Errorf("summary: %s", text)
	}
}

// TestResidentsAreNotReadAgain checks that with room for all, the second epoch reads nothing.
func TestResidentsAreNotReadAgain(t *testing.T) {
	cl := newCluster(t, 2, 240, 1<<20, patient)
	cl.train(2, 6, 3, "uniform")
	cl.close()
	for id, n := range cl.storage.reads {
		if n != 1 {
			t.Errorf("sample %d was read %d times", id, n)
		}
	}
}

func TestUnreadableSample(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<20)
	defer cl.close()
	cl.storage.bad[7] = true
	tr := cl.mustOpen(t, 0, 1, "sequential", 8)
	defer tr.close()
	if _, err := tr.plan(0); err != nil {
		t.Fatal(err)
	}
	ids, _, sources, err := tr.get(0, 0)
	if err != nil || ids[7] != 7 || sources[7] != 5 || sources[6] == 5 {
		t.Errorf("ids %v, sources %v, %v", ids, sources, err)
	}
}
