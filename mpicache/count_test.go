package mpicache

import (
	"encoding/json"
	"strings"
	"testing"

	"rankpool/mpicache/stats"
)

// TestBeginRecord checks the first line of the run log, which rank 0 writes once.
func TestBeginRecord(t *testing.T) {
	cl := newCluster(t, 2, 24, 1<<14, func(c *Config) {
		c.Launch = "a start"
		other := c.Data[0]
		other.Name = "val"
		c.Data = append(c.Data, other)
	})
	cl.close()
	begins := 0
	for i, record := range cl.records {
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), `{"event":"begin","time":"2`) {
			begins++
			if i > 0 || !strings.HasSuffix(string(text), `,"launch":"a start","ranks":2,"data":["train","val"]}`) {
				t.Errorf("line %d: %s", i, text)
			}
		}
	}
	if begins != 1 {
		t.Errorf("%d begins in %+v", begins, cl.records)
	}
}

// TestGetsDoNotWaitForTheRunLog blocks the run log when an epoch's line is written to it: batches
// are served meanwhile.
func TestGetsDoNotWaitForTheRunLog(t *testing.T) {
	written, open := make(chan struct{}), make(chan struct{})
	cl := newCluster(t, 1, 120, 3000, func(cfg *Config) {
		record := cfg.Record
		cfg.Record = func(r any) {
			if e, ok := r.(stats.Epoch); ok && e.Event == "epoch" && e.Epoch == 0 {
				close(written)
				<-open
			}
			record(r)
		}
	})
	defer cl.close()
	tr := cl.plan(t, 0)
	defer tr.close()
	tr.tally = counted(0, counts{stats.HitsLocal: 1})
	if _, _, _, err := tr.get(0, 0); err != nil {
		t.Fatal(err)
	}
	s := cl.nodes[0].rank.Sets[0].Find("")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Finishing()
	}()
	<-written
	_, _, _, err := tr.get(0, 1)
	close(open)
	<-done
	if err != nil {
		t.Errorf("a batch while an epoch's line is written: %v", err)
	}
}
