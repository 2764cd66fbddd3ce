package pack

import (
	"context"

	"rankpool/staging/storage"
)

const (
	// windowBytes bounds the samples of a shard that are read ahead: 64 MiB take 64 ms at 1 GB/s,
	// enough to hide a slow read. A rank that works on two shards needs 128 MiB, or its two largest
	// samples.
	windowBytes = 64 << 20
	// windowSamples is how many samples are read ahead: as many as a Fetcher may coalesce into a few
	// requests.
	windowSamples = 1024
)

// A pending is a sample that is being read.
type pending struct {
	bytes []byte
	done  chan error
}

// readInOrder reads the samples at positions [from, to) of p's order, many at a time, and passes
// them to use one after the other. The bytes are valid during the call only.
//
// Errors: a *storage.SampleError, what use returns, ctx's cause.
func readInOrder(ctx context.Context, p *Plan, fetcher *storage.Fetcher, from, to int,
	use func(place int, sample []byte) error,
) error {
	var queue []pending
	ahead, next := int64(0), from
	for place := from; place < to; place++ {
		for next < to && (len(queue) == 0 || len(queue) < windowSamples &&
			ahead+p.size(next) <= windowBytes) {
			queue = append(queue, begin(p, fetcher, next))
			ahead += p.size(next)
			next++
		}
		s := queue[0]
		queue = queue[1:]
		select {
		case err := <-s.done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := use(place, s.bytes); err != nil {
			return err
		}
		ahead -= int64(len(s.bytes))
	}
	return nil
}

// begin requests the sample at a position of the order; the position is also its need.
func begin(p *Plan, fetcher *storage.Fetcher, place int) pending {
	s := pending{make([]byte, p.size(place)), make(chan error, 1)}
	fetcher.Fetch(p.order[place], s.bytes, uint64(place), func(err error) { s.done <- err })
	return s
}

// size returns the size of the sample at a position of the order.
func (p *Plan) size(place int) int64 { return p.manifest.Size(p.order[place]) }
