package store

import (
	"rankpool/scheduler/draw"
)

// Storage reads samples. Package staging/storage implements it.
type Storage interface {
	// Fetch reads the sample into into, which has its size, and calls done once, from any
	// goroutine. Samples with smaller needs are read first.
	Fetch(id draw.SampleID, into []byte, need uint64, done func(error))
	// Demand announces that a trainer waits for all reads with this need or a smaller one.
	Demand(need uint64)
}

// DataSet is a data set that a node serves.
type DataSet struct {
	Name      string
	Samples   int
	Identity  string // its digest, the same on all ranks; "": unknown
	Times     string // the digest of its modification times, on this node
	Root      string
	IndexPath string // of the sample index that clients map
	Size      func(draw.SampleID) int64
	Label     func(draw.SampleID) int
	Storage   Storage

	PartitionBytes []int64 // capacity of every rank's partition, the same on all ranks
	// BookBytes is the total memory of all ranks, as Size counts it, for a system that chooses by
	// epoch.
	BookBytes   int64
	WindowBytes int64 // for samples read ahead or in use, beyond this rank's partition

	// TierBytes is the capacity of every rank's tier, in whole blocks of TierBlockBytes, the same on
	// all ranks. nil: no tiers.
	TierBytes      []int64
	TierBlockBytes int64
	Tier           Tier // this rank's; nil if it has none, or cannot use it

	// Packages holds this rank's packages, by number, for a system that uses packages. Its capacity is
	// PackageBytes, in whole blocks of PackageBlockBytes. nil: samples of packages are read one by
	// one.
	Packages                        Tier
	PackageBytes, PackageBlockBytes int64

	// KeepsCopies means that each rank keeps copies of its samples on its node's disk, and therefore
	// reads its samples for other ranks, too. It is the same on all ranks.
	KeepsCopies bool
	Kept        Kept // this rank's copies; nil if it has none, or cannot use them
}
