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
}

// counters are Stats that many goroutines count.
type counters struct {
	reads, bytes, retries, errors, inFlight atomic.Int64
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
	return Stats{c.reads.Load(), c.bytes.Load(), c.retries.Load(), c.errors.Load(), c.inFlight.Load()}
}
