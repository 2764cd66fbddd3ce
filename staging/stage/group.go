package stage

import (
	"context"
	"fmt"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// The channels of the ranks that stage together. Each has one reader at a time.
const (
	kindPlan   byte = iota // rank 0 to all: the plan
	kindNeed               // among all, through rank 0: what every rank is missing
	kindHead               // to the next of a chain: announces a frame
	kindTaken              // back: the frame has arrived
	kindBeat               // between rank 0 and every rank: alive, and progress
	kindDone               // barrier: all files are placed, and no rank writes any more
	kindReport             // among all, through rank 0: every rank's report
	kindAbort              // to rank 0 and from it to all: an error
)

// A group is the ranks that stage together.
type group struct {
	*ranks.Mux
	abort context.CancelCauseFunc
}

// newGroup starts to receive. abort is called with another rank's error.
func newGroup(t transport.Transport, abort context.CancelCauseFunc) *group {
	g := &group{ranks.NewMux(t), abort}
	g.Handle(kindAbort, g.aborted)
	return g
}

// An abortError is what ended staging on another rank.
type abortError string

func (e abortError) Error() string { return string(e) }

// abortAll ends staging on all ranks with this rank's err; the first error counts.
func (g *group) abortAll(err error) {
	g.abort(err)
	body := fmt.Appendf(nil, "rank %d: %v", g.Rank(), err)
	if g.Rank() != 0 {
		g.Send(0, kindAbort, body)
		return
	}
	g.SendOthers(kindAbort, body)
}

// aborted handles another rank's error; rank 0 forwards it.
func (g *group) aborted(_ int, body []byte) {
	g.abort(abortError(body))
	if g.Rank() == 0 {
		g.SendOthers(kindAbort, body)
	}
}
