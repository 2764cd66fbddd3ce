package systems

import (
	"rankpool/scheduler/stager"
)

// minIO keeps every newcomer while there is room, and never evicts. In a pool of several ranks a
// sample is kept once, by the rank that reads it first.
type minIO struct{}

func (minIO) Admit(stager.Place, stager.Use)       {}
func (minIO) Touch(stager.Place, stager.Use)       {}
func (minIO) Refresh(stager.Place, stager.Use)     {}
func (minIO) Remove(stager.Place)                  {}
func (minIO) Victim() (stager.Place, bool)         { return 0, false }
func (minIO) Yields(stager.Place, stager.Use) bool { return false }

var coordlSystem = System{
	Name: "coordl", Sampler: "torch", Policy: "coordl",
	NewPolicy: func(PolicyConfig) stager.Policy { return minIO{} },
	About:     "MinIO: keeps what is read until memory is full, and never evicts",
	Source: "Mohan et al., \"Analyzing and Mitigating Data Stalls in DNN Training\", VLDB " +
		"2021 (CoorDL), MinIO",
}
