package staging

import (
	"sync/atomic"
	"time"
)

// Who may write into the memory of the callers of a flight.
const (
	unclaimed = iota // nobody yet
	direct           // the one request that claimed it, while it reads
	private          // no request: each reads into a buffer of its own, and what ended first is copied
)

// A flight is a request to storage for one sample, or for neighbours in one shard, and possibly a second request for
// the same that overtakes the first.
//
// The caller's memory has one writer: before a request reads, it claims it, or it reads into a buffer of its own. A
// second request is sent only when no first one has claimed the memory, and then neither does. A flight is decided
// once, under the Fetcher's lock; only then, and only by who decided it, a buffer is copied and done called. So a
// request that returns late, even from a system call that cannot be taken back, finds nothing of the caller's to write to.
type flight struct {
	reads    []*read // in the order of their places in the file
	from, to int64
	ahead    bool // read ahead of its use
	tries    int  // of its reads, with this one; only a single one is tried again
	began    time.Time
	file     StorageFile // for the first request, if it was open already
	memory   atomic.Int32

	// The Fetcher's lock's:
	place    int // in flights.all; -1: decided
	requests int // under way
	hedged   bool
	late     bool // it was reported
}

func newFlight(reads []*read, ahead bool) *flight {
	return &flight{
		reads: reads, from: reads[0].from, to: reads[len(reads)-1].to, ahead: ahead,
		tries: reads[0].tries + 1, place: -1,
	}
}

func (fl *flight) size() int64 { return fl.to - fl.from }

func (fl *flight) opens() int {
	if fl.file == nil {
		return 1
	}
	return 0
}

// flights are the flights that are not decided, and the requests that are under way, also of decided ones.
type flights struct {
	all      []*flight
	begun    int64 // ever
	requests int
	bytes    int64
	ahead    int // requests for reads ahead of their use
}

// add counts a new flight and its first request.
func (s *flights) add(fl *flight) {
	fl.place = len(s.all)
	s.all = append(s.all, fl)
	s.begun++
	s.send(fl)
}

// decide forgets a flight.
func (s *flights) decide(fl *flight) {
	last := s.all[len(s.all)-1]
	s.all[fl.place], last.place = last, fl.place
	s.all[len(s.all)-1] = nil
	s.all = s.all[:len(s.all)-1]
	fl.place = -1
}

// send counts a request of a flight, land its end.
func (s *flights) send(fl *flight) { s.count(fl, 1) }

func (s *flights) land(fl *flight) { s.count(fl, -1) }

func (s *flights) count(fl *flight, n int) {
	fl.requests += n
	fl.reads[0].target.underWay += n
	s.requests += n
	s.bytes += int64(n) * fl.size()
	if fl.ahead {
		s.ahead += n
	}
}

// fly does a flight's first request, and then, while there is any, the next flight's.
func (f *Fetcher) fly(fl *flight) {
	for fl != nil {
		f.land(fl, f.request(fl, fl.file))
		f.mu.Lock()
		fl = f.next()
		f.begin()
		f.mu.Unlock()
	}
}

// again does a flight's second request.
func (f *Fetcher) again(fl *flight) {
	f.land(fl, f.request(fl, nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begin()
}

// land takes what a request of a flight brought. The first one that succeeded, or the last one, decides the flight.
func (f *Fetcher) land(fl *flight, got result) {
	defer got.release()
	f.mu.Lock()
	f.flights.land(fl)
	if fl.place < 0 || got.failedAny() && fl.requests > 0 {
		f.mu.Unlock()
		return
	}
	f.flights.decide(fl)
	f.measure(fl)
	var paused uint64 // maxJoined bits
	for i, r := range fl.reads {
		r.tries = fl.tries
		if failed := got.of(i); failed != nil && failed.mayPass && f.pause(r) {
			paused |= 1 << i
			continue
		}
		f.forget(r)
	}
	f.mu.Unlock()
	for i, r := range fl.reads {
		if paused>>i&1 == 0 {
			got.copyTo(i, r.into)
			f.finish(r, got.of(i).sampleError(f.manifest, r))
		}
	}
}

// measure tells the rules how long a flight took. f.mu is held.
func (f *Fetcher) measure(fl *flight) {
	now := time.Now()
	took := now.Sub(fl.began)
	f.counters.requests.Add(1)
	f.counters.nanoseconds.Add(int64(took))
	f.patrol.latencies.add(took)
	full := len(f.queues.waiting) > 0 && !f.waiting && f.flights.requests+1 >= f.limit.limit
	f.limit.ended(now, took, fl.size(), full)
}
