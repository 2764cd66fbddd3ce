package stage

import (
	"fmt"
	"time"

	"rankpool/mpicache/transport/ranks"
)

// watch starts to watch the other ranks; the caller stops it.
func (s *session) watch() *ranks.Watch {
	w := ranks.NewWatch(s.g.Channel(kindBeat), ranks.WatchOptions{
		Bound: time.Duration(s.opt.PeerTicks) * time.Second, Ticks: s.opt.Ticks,
		Sign: s.beat, Heard: s.heard, Lost: s.lost,
	})
	w.Start()
	return w
}

// beat returns this rank's sign of life, the bytes that it has copied; rank 0 reports progress with
// it.
func (s *session) beat() []byte {
	own := s.t.stats.bytes.Load()
	s.mu.Lock()
	s.bytes[s.g.Rank()] = own
	all := int64(0)
	for _, bytes := range s.bytes {
		all += bytes
	}
	s.mu.Unlock()
	if s.g.Rank() == 0 {
		s.opt.Progress(all, s.allBytes.Load())
	}
	return ranks.Encode(own)
}

// heard records another rank's progress.
func (s *session) heard(from int, body []byte) {
	var bytes int64
	if ranks.Decode(body, &bytes) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes[from] = bytes
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
	if rank == 0 || s.g.Rank() == 0 {
		s.g.abortAll(&SilentError{rank, s.opt.PeerTicks})
	}
}
