package stage

import (
	"fmt"
	"sync/atomic"
	"time"

	"rankpool/mpicache/transport/ranks"
)

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

// watch starts to watch the other ranks; the caller stops it.
func (s *session) watch() *ranks.Watch {
	w := ranks.NewWatch(s.mux.Channel(kindBeat), ranks.WatchOptions{
		Bound: time.Duration(s.opt.PeerTicks) * time.Second, Ticks: s.opt.Ticks,
		Sign: s.beat, Heard: s.heard, Lost: s.lost,
	})
	w.Start()
	return w
}

// beat returns this rank's sign of life, the bytes that it has copied; rank 0 reports progress with
// it.
func (s *session) beat() []byte {
	own, all := atomic.LoadInt64(&s.counts.Bytes), int64(0)
	s.bytes[s.mux.Rank()].Store(own)
	for rank := range s.bytes {
		all += s.bytes[rank].Load()
	}
	if s.mux.Rank() == 0 && s.opt.Progress != nil {
		s.opt.Progress(all, s.allBytes.Load())
	}
	return ranks.Encode(own)
}

// heard records another rank's progress.
func (s *session) heard(from int, body []byte) {
	var bytes int64
	if ranks.Decode(body, &bytes) == nil {
		s.bytes[from].Store(bytes)
	}
}

// A SilentError means that a rank is assumed dead.
type SilentError struct{ Rank, Ticks int }

// Error returns one sentence, with what to do.
func (e *SilentError) Error() string {
	return fmt.Sprintf("stage: rank %d has been silent for %d s and is assumed dead: run the same "+
		"command again to stage the rest", e.Rank, e.Ticks)
}

// lost ends staging because a rank is gone, which rank 0 reports.
func (s *session) lost(rank int) {
	if rank == 0 || s.mux.Rank() == 0 {
		s.abortAll(&SilentError{rank, s.opt.PeerTicks})
	}
}
