package stage

import "fmt"

// The channels of the ranks that stage together. Each has one reader at a time.
const (
	kindPlan   byte = iota // rank 0 to all: the plan
	kindNeed               // among all, through rank 0: what every rank is missing
	kindHead               // to the next of a chain: announces a frame
	kindBeat               // between rank 0 and every rank: alive, and progress
	kindDone               // barrier: all files are placed, and no rank writes any more
	kindReport             // among all, through rank 0: every rank's report
	kindAbort              // to rank 0 and from it to all: an error
)

// An abortError is what ended staging on another rank.
type abortError string

func (e abortError) Error() string { return string(e) }

// abortAll ends staging on all ranks with this rank's err; the first error counts.
func (s *session) abortAll(err error) {
	s.abort(err)
	body := fmt.Appendf(nil, "rank %d: %v", s.mux.Rank(), err)
	if s.mux.Rank() != 0 {
		s.mux.Send(0, kindAbort, body)
		return
	}
	s.mux.SendOthers(kindAbort, body)
}

// aborted handles another rank's error; rank 0 forwards it.
func (s *session) aborted(_ int, body []byte) {
	s.abort(abortError(body))
	if s.mux.Rank() == 0 {
		s.mux.SendOthers(kindAbort, body)
	}
}
