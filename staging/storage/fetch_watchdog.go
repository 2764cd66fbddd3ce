package storage

import (
	"fmt"
	"time"

	"rankpool/staging/dataset"
)

const (
	// stallAfter is how long a request may take before it is reported: longer than a busy server
	// needs, shorter than the 100 s after which a Lustre client gives up on a server.
	stallAfter = 30 * time.Second

	watchdogEvery = 100 * time.Millisecond // while requests are in flight
	reportEvery   = 30 * time.Second       // at most one line about requests that do not end
)

// A watchdog checks the requests in flight periodically.
type watchdog struct {
	started  bool      // a timer is set
	reported time.Time // last
}

// startWatchdog starts the timer of the watchdog. f.mu is held.
func (f *Fetcher) startWatchdog() {
	if !f.watchdog.started {
		f.watchdog.started = true
		time.AfterFunc(watchdogEvery, f.scan)
	}
}

// scan checks everything in flight once.
func (f *Fetcher) scan() {
	f.mu.Lock()
	now := time.Now()
	var worst *flight
	late := 0
	for fl := range f.flights.all {
		if now.Sub(fl.began) < stallAfter {
			continue
		}
		late++
		if worst == nil || fl.began.Before(worst.began) {
			worst = fl
		}
		if !fl.late {
			fl.late = true
			f.stats.Stalls++
		}
	}
	report := ""
	if worst != nil && now.Sub(f.watchdog.reported) >= reportEvery {
		f.watchdog.reported = now
		report = worst.report(f.manifest, now, late)
	}
	f.watchdog.started = false
	if len(f.flights.all) > 0 {
		f.startWatchdog()
	}
	f.mu.Unlock()
	if report != "" {
		f.opt.Log(report)
	}
}

// report describes a flight that takes long in one sentence; late is how many such flights there
// are.
func (fl *flight) report(m *dataset.Manifest, now time.Time, late int) string {
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
