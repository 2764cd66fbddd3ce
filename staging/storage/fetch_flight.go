package storage

import "time"

// A flight is a request to storage for one sample, or for neighbours in one shard. It reads into
// the callers' memory.
type flight struct {
	reads    []*read // in file order
	from, to int64
	ahead    bool // read ahead of its use
	tries    int  // of its reads, including this one; only a single read is retried
	began    time.Time
	file     *openFile
	opens    bool // it opens the file; otherwise another flight did or does
	got      int  // bytes of the samples that storage returned
	late     bool // it was reported; guarded by the Fetcher's lock
}

func newFlight(reads []*read, ahead bool) *flight {
	return &flight{
		reads: reads, from: reads[0].from, to: reads[len(reads)-1].to, ahead: ahead,
		tries: reads[0].tries + 1,
	}
}

func (fl *flight) size() int64 { return fl.to - fl.from }

func (fl *flight) openings() int {
	if fl.opens {
		return 1
	}
	return 0
}

// flights are the flights in progress.
type flights struct {
	all   map[*flight]struct{}
	bytes int64
	ahead int // flights for reads ahead of their use
}

func (s *flights) add(fl *flight) {
	s.all[fl] = struct{}{}
	s.count(fl, 1)
}

func (s *flights) remove(fl *flight) {
	delete(s.all, fl)
	s.count(fl, -1)
}

func (s *flights) count(fl *flight, n int) {
	fl.reads[0].target.underWay += n
	s.bytes += int64(n) * fl.size()
	if fl.ahead {
		s.ahead += n
	}
}

// fly performs a flight, and then further ones while there are any.
func (f *Fetcher) fly(fl *flight) {
	for fl != nil {
		f.land(fl, f.request(fl))
		f.mu.Lock()
		fl = f.next()
		f.begin()
		f.mu.Unlock()
	}
}

// land handles the result of a flight.
func (f *Fetcher) land(fl *flight, failed failures) {
	f.mu.Lock()
	f.flights.remove(fl)
	f.measure(fl)
	var paused uint64 // maxJoined bits
	for i, r := range fl.reads {
		r.tries = fl.tries
		failure := failed.of(i)
		if failure != nil && failure.MayPass && f.pause(r) {
			paused |= 1 << i
			continue
		}
		f.stats.ended(len(r.into), failure)
		f.queues.leave(r.shard)
	}
	f.mu.Unlock()
	for i, r := range fl.reads {
		if paused>>i&1 == 0 {
			f.finish(r, failed.of(i).sampleError(f.manifest, r))
		}
	}
}

// measure counts a flight, and passes its duration to the concurrency control. f.mu is held.
func (f *Fetcher) measure(fl *flight) {
	now := time.Now()
	took := now.Sub(fl.began)
	f.stats.Requests++
	f.stats.Nanoseconds += int64(took)
	f.stats.StorageBytes += int64(fl.got)
	full := len(f.queues.waiting) > 0 && !f.waiting && len(f.flights.all)+1 >= f.limit.limit
	f.limit.ended(now, took, fl.size(), full)
}
