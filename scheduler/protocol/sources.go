package protocol

import (
	"cmp"
	"fmt"
	"maps"
)

// Each rank makes the same plans from the same scores. After it has saved the scores that a plan
// was made from, it sends their digest to the other ranks; no trainer gets a plan before all ranks
// have made it from the same scores.

// sources are the digests of the scores from which plans were made. When training jumps to another
// epoch or starts over, all ranks begin a new generation.
type sources struct {
	told       []map[int]Digest // by rank, by epoch
	newest     []int            // by rank: the newest epoch, noEpoch before the first
	rank       int              // this one
	generation uint32
	early      []Sourced // of ranks that are a generation ahead
}

func newSources(rank, ranks int) sources {
	s := sources{told: make([]map[int]Digest, ranks), newest: make([]int, ranks), rank: rank}
	s.clear()
	return s
}

func (s *sources) clear() {
	for r := range s.told {
		s.told[r], s.newest[r] = map[int]Digest{}, noEpoch
	}
}

// next begins a new generation with the digests that were already received for it, and returns the
// first of their errors.
func (s *sources) next() (err error) {
	s.clear()
	s.generation++
	early := s.early
	s.early = nil
	for _, e := range early {
		err = cmp.Or(err, s.take(e))
	}
	return err
}

// keptSources is the number of epochs before a rank's newest for which its digests are kept: other
// ranks may be that far behind.
const keptSources = 3

// take records a rank's digest, now or when its generation begins here, and returns an error if it
// differs from that of another rank.
func (s *sources) take(e Sourced) error {
	switch {
	case e.Generation > s.generation:
		s.early = append(s.early, e)
		return nil
	case e.Generation < s.generation:
		return nil
	}
	digests := s.told[e.Rank]
	digests[e.Epoch], s.newest[e.Rank] = e.Scores, max(s.newest[e.Rank], e.Epoch)
	maps.DeleteFunc(digests, func(epoch int, _ Digest) bool {
		return epoch < s.newest[e.Rank]-keptSources
	})
	for r, told := range s.told {
		if other, ok := told[e.Epoch]; ok && other != e.Scores {
			a, b := min(r, e.Rank), max(r, e.Rank)
			return fmt.Errorf("ranks %d and %d have planned epoch %d from different importance "+
				"scores (%.8s, %.8s): resume from a checkpoint",
				a, b, e.Epoch, s.told[a][e.Epoch], s.told[b][e.Epoch])
		}
	}
	return nil
}

// agreed reports whether all ranks have planned an epoch or a later one.
func (s *sources) agreed(epoch int) bool {
	for r, told := range s.told {
		if _, ok := told[epoch]; !ok && s.newest[r] <= epoch {
			return false
		}
	}
	return true
}

// own returns this rank's digest for an epoch, false if it has not saved the scores.
func (s *sources) own(epoch int) (scores Digest, kept bool) {
	scores, kept = s.told[s.rank][epoch]
	return scores, kept
}
