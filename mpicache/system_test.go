package mpicache

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// TestSamplerOfTheSystem checks that a cache that runs as a published system refuses training with
// another sampler, but not sequential passes.
func TestSamplerOfTheSystem(t *testing.T) {
	for sampler, want := range map[string]string{
		"selective": "", "sequential": "", draw.InTorchsOrder: "",
		"pads": `this cache goes with the sampler selective (--system), and trainer 0 draws with pads: give BatchSampler sampler="selective"`,
	} {
		c := newCluster(t, 1, 16, 1<<20, func(cfg *Config) { cfg.Sampler = "selective" })
		tr, err := c.trainer(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err = tr.open(sampler, 4); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", sampler, err)
		}
		if err := tr.close(); err != nil {
			t.Error(err)
		}
		c.close()
	}
}

// TestImpossibleEpochs has a cache that counts the draws of all epochs refuse a training that has
// more than it can count.
func TestImpossibleEpochs(t *testing.T) {
	c := newCluster(t, 1, 16, 1<<20, func(cfg *Config) { cfg.System = "nopfs" })
	defer c.close()
	tr, err := c.trainer(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.close()
	tr.epochs = math.MaxInt32 - 1
	if err := tr.open("torch", 4); err == nil || !strings.Contains(err.Error(), "have more than") {
		t.Errorf("2 to the 31 epochs: %v", err)
	}
}

// TestOptionsOfTheSystem checks that options reach the sampler and are sent to clients.
func TestOptionsOfTheSystem(t *testing.T) {
	draws := func(options systems.Values) int {
		c := newCluster(t, 1, 100, 1<<20, func(cfg *Config) { cfg.Options = options })
		defer c.close()
		tr, err := c.trainer(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := tr.close(); err != nil {
				t.Error(err)
			}
		}()
		if w, err := tr.Welcome(); err != nil || w.Options != options.String() {
			t.Errorf("the client received the options %q, want %q: %v", w.Options, options, err)
		}
		if err := tr.open("selective", 4); err != nil {
			t.Fatal(err)
		}
		batches, err := tr.plan(0)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, b := range batches {
			n += len(b)
		}
		return n
	}
	if n := draws(nil); n != 100 {
		t.Errorf("epoch 0 has %d draws of 100 samples without scores", n)
	}
	if n := draws(systems.Values{"warm_up_epochs": 0, "beta": 0.5}); n < 40 || n > 90 {
		t.Errorf("without a warm-up, epoch 0 has %d draws, want about 70", n)
	}
}

// TestStateOfOtherOptions checks that an importance state that was made with other options is left
// alone.
func TestStateOfOtherOptions(t *testing.T) {
	for _, c := range []struct {
		options systems.Values
		used    bool
	}{{nil, false}, {systems.Values{"beta": 0.5}, true}} {
		path := filepath.Join(t.TempDir(), "state")
		snap := &protocol.Snapshot{
			Scores: protocol.EqualScores(100, 1),
			Stream: protocol.StreamID{
				Data: "train", Samples: 100, Sampler: "selective", Scorer: "loss",
				Options: "beta=0.5",
				Seed:    1, Batch: 4,
				Plan: plan.Version,
			},
		}
		if err := os.WriteFile(path, snap.Encode(), 0o600); err != nil {
			t.Fatal(err)
		}
		cl := newCluster(t, 1, 100, 1<<20,
			func(cfg *Config) { cfg.Options, cfg.StatePath = c.options, path })
		defer cl.close()
		tr := cl.mustOpen(t, 0, 1, "selective", 4)
		defer tr.close()
		_, err := tr.plan(0)
		if (err == nil) != c.used ||
			err != nil && !strings.Contains(err.Error(), "its options (--system) is beta=0.5") {
			t.Errorf("a state with beta=0.5 is used by ranks with %q: %v", c.options, err)
		}
	}
}
