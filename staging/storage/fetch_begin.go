package storage

import "time"

// begin starts requests while there are reads to do and the bounds allow. f.mu is held.
func (f *Fetcher) begin() {
	for fl := f.next(); fl != nil; fl = f.next() {
		go f.fly(fl)
	}
}

// next removes the reads of the next request from the queues, and returns the request; nil if none
// may begin now. f.mu is held.
func (f *Fetcher) next() *flight {
	if f.closed || f.waiting || len(f.flights.all) >= f.limit.limit {
		return nil
	}
	r, mostUrgent := f.queues.first(f.opt.TargetConcurrency)
	if r == nil {
		return nil
	}
	demanded := f.demanded && r.need <= f.demand
	ahead := f.demanded && !demanded
	if ahead && f.flights.ahead >= aheadShare(f.limit.limit, mostUrgent <= f.demand) {
		return nil
	}
	room := f.opt.Bytes - f.flights.bytes
	if f.flights.bytes > 0 && r.to-r.from > room {
		return nil
	}
	reads := coalesce(r, demanded, min(f.opt.CoalesceBytes, room))
	fl := newFlight(reads, ahead)
	fl.began = time.Now()
	fl.file, fl.opens = f.open.take(r.shard, fl.began)
	if wait := f.opt.Limit.Take(fl.began, fl.size(), fl.openings()); wait > 0 {
		f.waiting = true
		time.AfterFunc(wait, f.limitPassed)
		f.open.leave(r.shard, fl.file, fl.opens).close()
		return nil
	}
	for _, r := range reads {
		f.queues.remove(r)
	}
	f.stats.Coalesced += int64(len(reads) - 1)
	f.stats.Opens += int64(fl.openings())
	f.flights.add(fl)
	f.startWatchdog()
	return fl
}

// aheadShare returns how many of limit requests may be for reads ahead of their use: all but an
// eighth, so that there is usually room for what training waits for, and half while training waits
// for something that cannot begin.
func aheadShare(limit int, waits bool) int {
	if waits {
		return limit / 2
	}
	return limit - limit/8
}

func (f *Fetcher) limitPassed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = false
	f.begin()
}
