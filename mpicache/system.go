package mpicache

import (
	"cmp"

	"rankpool/scheduler/systems"
)

// system returns the system that the ranks run.
func (c *Config) system() *systems.System {
	s, err := systems.Find(cmp.Or(c.System, "rankpool"))
	if err != nil {
		panic("mpicache: " + err.Error())
	}
	return s
}
