package systems

import "rankpool/scheduler"

// minIO keeps every newcomer while there is room, and never evicts. In a pool of several ranks a
// sample is kept once, by the rank that reads it first.
type minIO struct{}

func (minIO) Admit(scheduler.Place, scheduler.Use)       {}
func (minIO) Touch(scheduler.Place, scheduler.Use)       {}
func (minIO) Refresh(scheduler.Place, scheduler.Use)     {}
func (minIO) Remove(scheduler.Place)                     {}
func (minIO) Victim() (scheduler.Place, bool)            { return 0, false }
func (minIO) Yields(scheduler.Place, scheduler.Use) bool { return false }

var coordlSystem = System{
	Name: "coordl", Sampler: "torch", Policy: "coordl",
	NewPolicy: func(PolicyConfig) scheduler.Policy { return minIO{} },
	About:     "MinIO: keeps what is read until memory is full, and never evicts",
	Source: "Mohan et al., \"Analyzing and Mitigating Data Stalls in DNN Training\", VLDB " +
		"2021 (CoorDL), MinIO",
}
