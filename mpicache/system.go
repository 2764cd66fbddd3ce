package mpicache

import (
	"cmp"

	"rankpool/scheduler/systems"
)

// system is what the ranks are.
func (c *Config) system() *systems.System {
	s, err := systems.Find(cmp.Or(c.System, "rankpool"))
	if err != nil {
		panic("mpicache: " + err.Error())
	}
	return s
}

// systemSampler is the sampler that goes with the system.
func (n *Node) systemSampler() string { return cmp.Or(n.cfg.Sampler, n.cfg.system().Sampler) }
