package copier

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A beat is a rank's sign of life, and its progress.
type beat struct {
	Items, Bytes, StorageBytes int64
	AllItems, AllBytes         int64 // 0 until the rank knows
}

// A watch finds ranks that are gone: rank 0 gets a message from every rank at every tick, and every
// rank from rank 0. It counts ticks, not seconds, so that a process that was stopped for a while
// does not declare the others dead.
type watch struct {
	mu        sync.Mutex
	beats     []beat // the last of each rank
	silent    []int  // ticks since then
	needBytes int64
	allItems  atomic.Int64
	allBytes  atomic.Int64
}

// startBeating starts the watch; the returned function stops it.
func (s *session) startBeating() (stop func()) {
	ticks, end := s.opt.Ticks, func() {}
	if ticks == nil {
		ticker := time.NewTicker(time.Second)
		ticks, end = ticker.C, ticker.Stop
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-ticks:
				s.tick()
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		running.Wait()
		end()
	}
}

// tick sends a sign of life, and looks for ranks that sent none.
func (s *session) tick() {
	stats := &s.t.stats
	b := beat{
		stats.settled.Load(), stats.bytes.Load(), stats.storageBytes.Load(), s.allItems.Load(),
		s.allBytes.Load(),
	}
	s.mu.Lock()
	s.beats[s.g.Rank()] = b
	var dead []int
	for rank := range s.silent {
		if rank == s.g.Rank() || s.g.Rank() != 0 && rank != 0 {
			continue
		}
		if s.silent[rank]++; s.silent[rank] == s.opt.PeerTicks {
			dead = append(dead, rank)
		}
	}
	progress := s.progress()
	s.mu.Unlock()
	body := encode(&b)
	if s.g.Rank() != 0 {
		s.g.sendRaw(0, kindBeat, body)
	} else {
		for rank := 1; rank < s.g.Size(); rank++ {
			s.g.sendRaw(rank, kindBeat, body)
		}
		s.opt.Progress(progress)
	}
	for _, rank := range dead {
		s.lost(rank)
	}
}

// heard records a beat.
func (s *session) heard(from int, body []byte) {
	var b beat
	if decode(body, &b) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beats[from], s.silent[from] = b, 0
}

// progress adds up what the ranks have reported. s.mu is held.
func (s *session) progress() Progress {
	p := Progress{AllItems: s.allItems.Load(), AllBytes: s.allBytes.Load()}
	for _, b := range s.beats {
		p.Items += b.Items
		p.Bytes += b.Bytes
		p.StorageBytes += b.StorageBytes
	}
	return p
}

// A SilentError means that a rank is taken for dead.
type SilentError struct{ Rank, Ticks int }

// Error returns one sentence that says what to do.
func (e *SilentError) Error() string {
	return fmt.Sprintf("copier: rank %d has been silent for %d s and is assumed dead: run the same "+
		"command again to stage the rest",
		e.Rank, e.Ticks)
}

// lost ends staging without a rank that is gone. Rank 0 does not wait for its report.
func (s *session) lost(rank int) {
	err := &SilentError{rank, s.opt.PeerTicks}
	if rank == 0 {
		s.g.abort(err)
		s.die(err)
		return
	}
	s.g.abortAll(err)
	s.g.deliver(rank, kindReport, encode(&RankReport{Rank: rank, Dead: true}))
}
