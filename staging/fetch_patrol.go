package staging

import (
	"fmt"
	"time"
)

const (
	patrolEvery = 100 * time.Millisecond // while requests are in flight, or files open
	reportEvery = 30 * time.Second       // at most one line about requests that do not end
)

// A patrol checks the requests in flight and the open files periodically.
type patrol struct {
	walking  bool      // a timer is set
	reported time.Time // last
}

// keepWatch starts the timer of the patrol. f.mu is held.
func (f *Fetcher) keepWatch() {
	if !f.patrol.walking {
		f.patrol.walking = true
		time.AfterFunc(patrolEvery, f.walk)
	}
}

// walk checks everything in flight once.
func (f *Fetcher) walk() {
	f.mu.Lock()
	now := time.Now()
	var worst *flight
	late := 0
	for _, fl := range f.flights.all {
		if now.Sub(fl.began) < f.opt.StallAfter {
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

// report describes a flight that takes long, as one of several, in a sentence.
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
