package staging

import (
	"errors"
	"sync/atomic"
)

// Stats counts what a Fetcher has done.
type Stats struct {
	Reads    int64 // samples read
	Bytes    int64 // their bytes
	Retries  int64 // tries after the first of a sample
	Errors   int64 // samples that could not be read
	InFlight int64 // samples asked for and not done: queued, under way, or waiting for the next try

	StorageBytes int64 // bytes of samples that storage gave, each time that it did
	Opens        int64 // files opened
	Requests     int64 // of storage that have ended
	Nanoseconds  int64 // that they took, summed: divided by Requests the mean latency
	Coalesced    int64 // samples that were read along with another one, without a request of their own
	Stalls       int64 // requests that took longer than FetchOptions.StallAfter
	UnderWay     int   // requests at this moment
	Concurrency  int   // how many are allowed at this moment
}

// counters are Stats that many goroutines count.
type counters struct {
	reads, bytes, retries, errors, inFlight atomic.Int64
	storageBytes, opens, coalesced, stalls  atomic.Int64
	requests, nanoseconds                   atomic.Int64
}

// count counts the end of one read of n bytes.
func (c *counters) count(n int, err error) {
	switch {
	case err == nil:
		c.reads.Add(1)
		c.bytes.Add(int64(n))
	case errors.Is(err, ErrClosed):
	default:
		c.errors.Add(1)
	}
	c.inFlight.Add(-1)
}

func (c *counters) read() Stats {
	return Stats{
		Reads: c.reads.Load(), Bytes: c.bytes.Load(), Retries: c.retries.Load(), Errors: c.errors.Load(),
		InFlight:     c.inFlight.Load(),
		StorageBytes: c.storageBytes.Load(), Opens: c.opens.Load(), Coalesced: c.coalesced.Load(),
		Stalls:   c.stalls.Load(),
		Requests: c.requests.Load(), Nanoseconds: c.nanoseconds.Load(),
	}
}
