package top

import (
	"fmt"
	"slices"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
)

// silentOf returns the ranks that have been silent for a while, if this is rank 0, which knows all.
func silentOf(s door.Status) []int {
	ranks := []int{}
	for r := range s.Ranks {
		of := func(n stats.Reading) bool { return n.Rank == r }
		if s.Rank == 0 && !slices.ContainsFunc(s.Nodes, of) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// notesOn describes what is missing, in sentences.
func notesOn(s door.Status) (notes []string) {
	if s.Rank != 0 {
		notes = append(notes, fmt.Sprintf("this is rank %d of %d alone: rank 0 knows all, so call "+
			"top on its node", s.Rank, s.Ranks))
	}
	switch silent := silentOf(s); {
	case len(silent) == 1:
		notes = append(notes, fmt.Sprintf("rank %d is silent", silent[0]))
	case len(silent) > 1:
		notes = append(notes, fmt.Sprintf("%d of %d ranks are silent, rank %d first", len(silent),
			s.Ranks, silent[0]))
	}
	return notes
}

// A reading is a door's answer at a time, or an error.
type reading struct {
	at     time.Time
	status door.Status
	err    error
}

func (t *run) read() reading {
	status, err := t.door.Status()
	return reading{time.Now(), status, err}
}
