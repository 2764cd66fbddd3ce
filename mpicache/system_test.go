package mpicache

import (
	"strings"
	"testing"
)

// TestSamplerOfTheSystem has a cache that is a published system refuse training that draws with another sampler, and no pass in order.
func TestSamplerOfTheSystem(t *testing.T) {
	for sampler, want := range map[string]string{
		"selective": "", "sequential": "",
		"pads": `this cache goes with the sampler selective (--system, --sampler), and trainer 0 draws with pads: give BatchSampler sampler="selective"`,
	} {
		c := newCluster(t, 1, 16, 1<<20, func(cfg *Config) { cfg.Sampler = "selective" })
		tr, err := c.trainer(0, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err = tr.open(sampler, 4); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", sampler, err)
		}
		if err := tr.close(); err != nil {
			t.Error(err)
		}
	}
}
