package storage

import "time"

const (
	// DefaultRetries is how often a failed read is retried by default.
	DefaultRetries = 4

	// firstDelay is the wait before the first retry; each further one is four times as long, at most
	// maxDelay. The default retries wait 1.7 s in all: enough for a short fail-over, without delaying
	// training for long.
	firstDelay = 20 * time.Millisecond
	maxDelay   = 2 * time.Second
)

// pause keeps a read for its next try; it returns false if there is to be none. f.mu is held.
func (f *Fetcher) pause(r *read) bool {
	if r.tries > f.opt.Retries || f.closed {
		return false
	}
	f.counters.retries.Add(1)
	f.paused[r] = time.AfterFunc(delay(r.tries), func() { f.resume(r) })
	return true
}

// resume puts a paused read back into the queue.
func (f *Fetcher) resume(r *read) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, still := f.paused[r]; still {
		delete(f.paused, r)
		f.queues.push(r)
		f.begin()
	}
}

// delay returns how long to wait after a read has failed tries > 0 times.
func delay(tries int) time.Duration {
	d := firstDelay
	for range tries - 1 {
		d = min(4*d, maxDelay)
	}
	return d
}
