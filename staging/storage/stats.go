package storage

import (
	"errors"
	"sync/atomic"
)

// Stats counts what a Fetcher has done.
type Stats struct {
	Reads   int64 // samples read
	Bytes   int64 // their bytes
	Retries int64 // tries after a sample's first
	Errors  int64 // samples that could not be read

	StorageBytes int64 // bytes of samples that storage returned, each time that it did
	Opens        int64 // files opened
	Requests     int64 // to storage, completed
	Nanoseconds  int64 // their summed duration: divided by Requests, the mean latency
	Coalesced    int64 // samples that were read together with another one, without their own request
	Stalls       int64 // requests that took longer than stallAfter
	Concurrency  int   // the limit on requests at this moment
}

// counters are atomic counters of Stats.
type counters struct {
	reads, bytes, retries, errors          atomic.Int64
	storageBytes, opens, coalesced, stalls atomic.Int64
	requests, nanoseconds                  atomic.Int64
}

// count counts the end of one read of n bytes.
func (c *counters) count(n int, err error) {
	switch {
	case err == nil:
		c.reads.Add(1)
		c.bytes.Add(int64(n))
	case !errors.Is(err, ErrClosed):
		c.errors.Add(1)
	}
}

func (c *counters) read() Stats {
	return Stats{
		Reads: c.reads.Load(), Bytes: c.bytes.Load(), Retries: c.retries.Load(), Errors: c.errors.Load(),
		StorageBytes: c.storageBytes.Load(), Opens: c.opens.Load(), Coalesced: c.coalesced.Load(),
		Stalls:   c.stalls.Load(),
		Requests: c.requests.Load(), Nanoseconds: c.nanoseconds.Load(),
	}
}
