package systems

// Offline reports whether the system needs the whole trace before it begins: it has neither a
// Policy nor a Pool, and package simulator computes it.
func (s *System) Offline() bool { return s.NewPolicy == nil && s.NewPool == nil }

const minSource = "Belady, IBM Systems Journal 1966, MIN; bypass as in McFarling, ISCA 1992"

var minSystem = System{
	Simulated: "knows all draws to come",
	Name:      "min", Sampler: "torch", Policy: "min", Source: minSource,
	About: "the bound: knows all draws to come; evicts what is drawn farthest ahead, keeps " +
		"nothing that is drawn later still",
}

var minPartitionedSystem = System{
	Simulated: "knows all draws to come",
	Name:      "min-partitioned", Sampler: "torch", Policy: "min", Source: minSource,
	About: "the bound of a cache whose samples stay with the rank that their hash says: min in " +
		"each rank's part alone",
}
