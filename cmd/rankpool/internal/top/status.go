package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
)

// A nodesStatus is what a rank reports about the nodes that it knows: rank 0 about all that are not
// silent, any other rank about its own.
type nodesStatus struct {
	Rank  int             `json:"rank"`
	Ranks int             `json:"ranks"`
	Nodes []stats.Reading `json:"nodes"`
}

// silent returns the ranks that have been silent for a while.
func (s nodesStatus) silent() []int {
	if s.Rank != 0 {
		return nil
	}
	var ranks []int
	for r := range s.Ranks {
		if !slices.ContainsFunc(s.Nodes, func(n stats.Reading) bool { return n.Rank == r }) {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// notes describes what is missing, in sentences.
func (s nodesStatus) notes() []string {
	var notes []string
	if s.Rank != 0 {
		notes = append(notes, fmt.Sprintf("this is rank %d of %d alone: rank 0 knows all, so call "+
			"top on its node", s.Rank, s.Ranks))
	}
	switch silent := s.silent(); {
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
	status nodesStatus
	err    error
}

// A poller polls a door, and connects again if the connection was closed.
type poller struct {
	path   string
	client *door.Client // nil while not connected
}

func (d *poller) read() (r reading) {
	r.at = time.Now()
	if d.client == nil {
		if d.client, r.err = control.Dial(d.path); r.err != nil {
			d.client = nil
			return r
		}
	}
	reply, err := d.client.Call(door.KindStatus, nil)
	if err == nil {
		err = json.Unmarshal(reply, &r.status)
	}
	if err == nil && len(r.status.Nodes) == 0 {
		err = errors.New("the rank reports nothing about its node: it is another version of " +
			"rankpool than this one")
	}
	if r.err = err; err != nil {
		d.close()
	}
	return r
}

func (d *poller) close() {
	if d.client != nil {
		_ = d.client.Close() // nothing was written that could be lost
		d.client = nil
	}
}
