package mpicache

import (
	"encoding/json"
	"strings"
	"testing"
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
