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

// beat returns this rank's sign of life; rank 0 reports progress with it.
func (s *session) beat() []byte {
	stats := &s.t.stats
	b := Progress{
		Items: stats.settled.Load(), Bytes: stats.bytes.Load(),
		StorageBytes: stats.storageBytes.Load(),
	}
	s.mu.Lock()
	s.last[s.g.Rank()] = b
	progress := s.progress()
	s.mu.Unlock()
	if s.g.Rank() == 0 {
		s.opt.Progress(progress)
	}
	return ranks.Encode(&b)
}

// heard records another rank's progress.
func (s *session) heard(from int, body []byte) {
	var b Progress
	if ranks.Decode(body, &b) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last[from] = b
}

// progress adds up what the ranks have reported. s.mu is held.
func (s *session) progress() Progress {
	p := Progress{AllItems: s.allItems.Load(), AllBytes: s.allBytes.Load()}
	for _, b := range s.last {
		p.Items += b.Items
		p.Bytes += b.Bytes
		p.StorageBytes += b.StorageBytes
	}
	return p
}

// A SilentError means that a rank is assumed dead.
type SilentError struct{ Rank, Ticks int }

// Error returns one sentence, with what to do.
func (e *SilentError) Error() string {
	return fmt.Sprintf("stage: rank %d has been silent for %d s and is assumed dead: run the same "+
		"command again to stage the rest", e.Rank, e.Ticks)
}

// lost ends staging because a rank is gone, which rank 0 reports. It does not wait for that rank's
// report.
func (s *session) lost(rank int) {
	if rank != 0 && s.g.Rank() != 0 {
		return
	}
	err := &SilentError{rank, s.opt.PeerTicks}
	if rank == 0 {
		s.g.abort(err)
		s.die(err)
		return
	}
	s.g.abortAll(err)
	s.g.Deliver(rank, kindReport, ranks.Encode(&RankReport{Rank: rank, Dead: true}))
}
