package mpicache

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var updateScenes = flag.Bool("update", false, "write the scenes of e2e")

// scene describes the job of a seed, without the ranks that have no trainers, for people and for
// e2e/scenes.py, which plays it with processes.
func (c *simConfig) scene(seed uint64) string {
	ranks := c.ranks - c.idle
	text := fmt.Sprintf("seed=%d ranks=%d trainers=%d samples=%d epochs=%d sampler=%s memory=%d "+
		"nan=%d\n", seed, ranks, c.perRank, c.samples, c.epochs, c.sampler,
		100*c.partition*int64(c.ranks)/(int64(c.samples)*128), map[bool]int{true: 1}[c.nan])
	for _, f := range c.faults {
		text += fmt.Sprintf("%d %s\n", f.step, f.name)
	}
	return text
}

// TestScenes compares the file that e2e plays with the jobs of the first hundred seeds. With
// -update it writes the file.
func TestScenes(t *testing.T) {
	const path = "../e2e/scenes.txt"
	var all strings.Builder
	for seed := range uint64(100) {
		c := newSimConfig(newSimClock(seed, false))
		all.WriteString(c.scene(seed))
	}
	if *updateScenes {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != all.String() {
		t.Errorf("%s is not what seeds draw (%v): go test ./mpicache -run Scenes -update", path, err)
	}
}
