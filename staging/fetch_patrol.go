package staging

import (
	"fmt"
	"time"
)

// The rules of second requests (hedges) and of the report of what does not end.
//
// A request is late when it takes hedgeMultiple times as long as 95 of 100 did lately. A late flight gets a second
// request, if no request has begun to read into the caller's memory, and if no more than hedgeShare of all flights
// have got one. Reading straight into the caller's memory saves a copy, so that is what requests do as long as none
// is late; a late one that has claimed the memory makes the next armedFlights flights read into buffers of their own,
// so that they can be overtaken.
//
// Source: J. Dean and L. A. Barroso, The Tail at Scale, CACM 56(2), 2013: a second request after the 95th percentile
// costs 5 % more load.
// Differs: the multiple and the floor, as samples have different sizes, and a read of less than 100 ms holds up no training.
const (
	hedgePercentile = 95
	hedgeMultiple   = 3
	hedgeFloor      = 100 * time.Millisecond
	hedgeShare      = 0.05
	hedgeMost       = 8 << 20 // bytes; a larger flight takes long because it is large
	armedFlights    = 2048

	patrolEvery = 10 * time.Millisecond  // while requests are under way
	idleEvery   = 100 * time.Millisecond // while only files are open
	reportEvery = 30 * time.Second       // at most one line about what does not end
)

// A patrol looks at the requests under way from time to time.
type patrol struct {
	walking   bool      // a timer is set
	due       time.Time // when it ends
	patientTo time.Time // nothing is late before
	latencies latencies
	hedged    int64
	armedTo   int64     // flights before this one can be overtaken
	reported  time.Time // last
}

// armed reports whether a flight is to read into buffers of its own, when so many have begun.
func (p *patrol) armed(begun int64) bool { return begun < p.armedTo }

// starved notes when the patrol itself comes late: then the processors have too much to do, and what takes long is not
// storage's fault.
func (p *patrol) starved(now time.Time) {
	if now.Sub(p.due) > patrolEvery {
		p.patientTo = now.Add(hedgeFloor)
	}
}

// lateAfter returns after how long a request is late; false when that is not known at the moment.
func (p *patrol) lateAfter(now time.Time) (time.Duration, bool) {
	usual, known := p.latencies.percentile(hedgePercentile)
	return max(hedgeMultiple*usual, hedgeFloor), known && !now.Before(p.patientTo)
}

// mayHedge reports whether one more second request stays within the share of so many flights.
func (p *patrol) mayHedge(begun int64) bool { return float64(p.hedged+1) <= hedgeShare*float64(begun) }

// keepWatch has the patrol walk. f.mu is held.
func (f *Fetcher) keepWatch() {
	if f.patrol.walking {
		return
	}
	f.patrol.walking = true
	every := patrolEvery
	if len(f.flights.all) == 0 {
		every = idleEvery
	}
	f.patrol.due = time.Now().Add(every)
	time.AfterFunc(every, f.walk)
}

// walk looks once at all that is under way.
func (f *Fetcher) walk() {
	f.mu.Lock()
	now := time.Now()
	f.patrol.starved(now)
	after, known := f.patrol.lateAfter(now)
	var worst *flight
	late := 0
	for _, fl := range f.flights.all {
		age := now.Sub(fl.began)
		if known && age >= after {
			f.hedge(fl, now)
		}
		if age < f.opt.StallAfter {
			continue
		}
		late++
		if worst == nil || fl.began.Before(worst.began) {
			worst = fl
		}
		if !fl.late {
			fl.late = true
			f.counters.stalls.Add(1)
		}
	}
	report := ""
	if worst != nil && (f.patrol.reported.IsZero() || now.Sub(f.patrol.reported) >= reportEvery) {
		f.patrol.reported = now
		report = worst.report(f.manifest, now, late)
	}
	files := f.idle.takeOld(now)
	f.patrol.walking = false
	if len(f.flights.all) > 0 || len(f.idle.files) > 0 {
		f.keepWatch()
	}
	f.mu.Unlock()
	closeFiles(files)
	if report != "" {
		f.opt.Log(report)
	}
}

// report says in a sentence that a flight takes long, as one of so many.
func (fl *flight) report(m *Manifest, now time.Time, late int) string {
	where := ""
	if id := fl.reads[0].target.id; id >= 0 {
		where = fmt.Sprintf(" on storage target %d", id)
	}
	others := ""
	if late > 1 {
		others = fmt.Sprintf(", nor have %d others", late-1)
	}
	return fmt.Sprintf("staging: reading %s%s has not ended after %v%s; storage may be stuck",
		m.Path(fl.reads[0].id), where, now.Sub(fl.began).Round(time.Second), others)
}

// withRoom returns a bound on requests with room for an eighth more, but one at least: second requests come when
// those under way do not end.
func withRoom(bound int) int { return bound + max(1, bound/8) }

// hedge sends a late flight's second request, if it may have one. f.mu is held.
func (f *Fetcher) hedge(fl *flight, now time.Time) {
	if f.opt.NoHedges || f.closed || fl.hedged || fl.size() > hedgeMost {
		return
	}
	fl.memory.CompareAndSwap(unclaimed, private) // before it reads, it can still be overtaken
	if fl.memory.Load() == direct {
		f.patrol.armedTo = f.flights.begun + armedFlights
		return
	}
	target := fl.reads[0].target
	if !f.patrol.mayHedge(f.flights.begun) || f.flights.requests >= withRoom(f.limit.limit) ||
		target.id >= 0 && target.underWay >= withRoom(f.opt.TargetConcurrency) ||
		f.flights.bytes+fl.size() > f.opt.Bytes || f.opt.Limit.Take(now, fl.size(), 1) > 0 {
		return
	}
	fl.hedged = true
	f.patrol.hedged++
	f.counters.hedged.Add(1)
	f.flights.send(fl)
	go f.again(fl)
}
