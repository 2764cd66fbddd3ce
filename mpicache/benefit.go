package mpicache

import (
	"slices"

	"rankpool/mpicache/training"
)

// Benefit selects when the benefit of trainings is measured.
type Benefit uint8

// The values of Config.Benefit.
const (
	BenefitAuto   Benefit = iota // when there is memory to divide
	BenefitAlways                // for every training
	BenefitNever
)

// Benefits are the names of these values.
var Benefits = []string{"auto", "always", "never"}

// measures reports whether to measure the benefit of trainings now.
func (n *Node) measures(trainings int) bool {
	switch n.cfg.Benefit {
	case BenefitAlways:
		return true
	case BenefitNever:
		return false
	}
	rank := n.cfg.Transport.Rank()
	return trainings > 1 && slices.ContainsFunc(n.rank.Sets, func(s *training.Set) bool {
		// this rank has no room for all it owns
		return s.Store().OwnBytes() > s.Data().PartitionBytes[rank]
	})
}
