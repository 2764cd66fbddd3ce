package mpicache

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// TestAssignOfASpec checks that trainers that request the sampler's own assignment get it, whatever
// the rank's flags.
func TestAssignOfASpec(t *testing.T) {
	for _, started := range []plan.Assignment{plan.AssignLocal, plan.AssignSampler} {
		c := newCluster(t, 2, 64, 1<<16, func(cfg *Config) { cfg.Assignment = started })
		var trainers []*trainer
		for rank := range 2 {
			tr, err := c.trainer(rank, 2)
			if err != nil {
				t.Fatal(err)
			}
			trainers = append(trainers, tr)
			text, err := json.Marshal(
				protocol.Spec{
					Data: "train", Sampler: "sequential", BatchSize: 4, Assign: "sampler",
					Trainer: rank, World: 2, Training: &protocol.Training{Life: uint64(rank)},
				})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tr.Call(door.KindOpen, text); err != nil {
				t.Fatal(err)
			}
		}
		for rank, tr := range trainers {
			parts, err := tr.plan(0)
			if err != nil {
				t.Fatal(err)
			}
			for b, part := range parts {
				want := []int{8*b + rank, 8*b + rank + 2, 8*b + rank + 4, 8*b + rank + 6}
				if fmt.Sprint(part) != fmt.Sprint(want) {
					t.Fatalf("trainer %d, batch %d: %v, want %v", rank, b, part, want)
				}
			}
			if err := tr.close(); err != nil {
				t.Error(err)
			}
		}
		c.close()
	}
}

func TestUnknownAssign(t *testing.T) {
	c := newCluster(t, 1, 64, 1<<16)
	defer c.close()
	tr, err := c.trainer(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.Call(door.KindOpen, []byte(`{"data":"train","sampler":"torch","batch_size":4,"assign":"near","trainer":0,"world":1}`))
	if want := `trainer 0 has assign "near"; it is local or sampler`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := tr.close(); err != nil {
		t.Error(err)
	}
}
