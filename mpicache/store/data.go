package store

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
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
	Samples   int          // that training draws
	Pieces    *plan.Pieces // what samples are made of; nil: each is one piece
	Identity  string       // its digest, the same on all ranks; "": unknown
	Times     string       // the digest of its modification times, on this node
	Root      string
	IndexPath string                    // of the sample index that clients map
	Size      func(draw.SampleID) int64 // of a piece
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

// Held is how many ids memory and disks hold something for: those of samples, or of the pieces that
// samples are made of.
func (d *DataSet) Held() int {
	if d.Pieces == nil {
		return d.Samples
	}
	return d.Pieces.Count
}

// Widest is how many pieces a sample has at most.
func (d *DataSet) Widest() int {
	if d.Pieces == nil {
		return 1
	}
	return d.Pieces.Widest()
}

// Owner returns the rank whose partition may hold a sample, or a piece of samples.
func (d *DataSet) Owner(id draw.SampleID, ranks int) int {
	if d.Pieces == nil {
		return draw.Owner(id, ranks)
	}
	return draw.OwnerOfBlock(id, d.Pieces.Block, ranks)
}
