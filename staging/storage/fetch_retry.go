package storage

import "time"

const (
	// retries is how often a failed read is retried.
	retries = 4

	// firstDelay is the wait before the first retry; each further one is four times as long. All
	// retries wait 1.7 s: enough for a short fail-over, without delaying training for long.
	firstDelay = 20 * time.Millisecond
)

// pause keeps a read for its next try; it returns false if there is to be none. f.mu is held.
func (f *Fetcher) pause(r *read) bool {
	if r.tries > retries || f.closed {
		return false
	}
	f.stats.Retries++
	f.paused[r] = time.AfterFunc(firstDelay<<(2*(r.tries-1)), func() { f.resume(r) })
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
