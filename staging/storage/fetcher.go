package storage

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
)

const (
	// DefaultFetchBytes is the default bound on the bytes that a Fetcher has in flight. Chosen: 16
	// samples of 16 MiB; a smaller bound would limit 256 coalesced reads only on storage beyond 50
	// GB/s per node.
	DefaultFetchBytes = 256 << 20

	// DefaultTargetConcurrency is the default bound on the requests of one Fetcher to one storage
	// target: as many as a Lustre client sends to it; more would queue in the client.
	//
	// Source: Lustre 2.16, OBD_MAX_RIF_DEFAULT.
	DefaultTargetConcurrency = 8
)

// ErrClosed is the error of a read that had not ended when the Fetcher was closed.
var ErrClosed = errors.New("staging: the fetcher is closed")

// FetchOptions controls a Fetcher. The zero value is ready to use.
type FetchOptions struct {
	// requests in flight; 0: adaptive, starting with DefaultFetchConcurrency, or fewer large ones
	Concurrency int
	// bytes in flight, or one larger request; 0: DefaultFetchBytes
	Bytes   int64
	Storage Storage // nil: SystemStorage

	// neighbours are read at once up to this size; 0: DefaultCoalesceBytes, negative: never
	CoalesceBytes int64
	// the storage target of a sample's file, < 0 if unknown; nil: always unknown
	TargetOf func(id draw.SampleID) int
	// requests in flight to one target; 0: DefaultTargetConcurrency
	TargetConcurrency int
	Limit             *RateLimit // shared with other Fetchers; nil: none
	// called with one sentence about requests that do not end; may be nil
	Log func(msg string)
}

func (o FetchOptions) withDefaults() FetchOptions {
	o.Bytes = cmp.Or(o.Bytes, DefaultFetchBytes)
	o.CoalesceBytes = cmp.Or(o.CoalesceBytes, DefaultCoalesceBytes)
	o.TargetConcurrency = cmp.Or(o.TargetConcurrency, DefaultTargetConcurrency)
	if o.Storage == nil {
		o.Storage = SystemStorage{}
	}
	if o.TargetOf == nil {
		o.TargetOf = func(draw.SampleID) int { return -1 }
	}
	if o.Log == nil {
		o.Log = func(string) {}
	}
	return o
}

// A Fetcher reads samples from storage, in order of need, into memory that the caller provides.
//
// Its parts, a file each: what comes next (readqueue.go, fetch_begin.go), neighbours that are read
// at once (fetch_coalesce.go), requests (fetch_flight.go), how many are in flight
// (fetch_concurrency.go), limits (fetch_rate.go), reports of requests that do not end
// (fetch_watchdog.go), files kept open (fetch_files.go), retries (fetch_retry.go).
//
// All methods are safe for concurrent use.
type Fetcher struct {
	manifest *dataset.Manifest
	opt      FetchOptions
	asking   sync.WaitGroup // reads whose done has not returned

	mu       sync.Mutex
	stats    Stats
	queues   queues
	seq      uint64                // number of Fetch calls
	paused   map[*read]*time.Timer // waiting for their next try
	demand   uint64                // the largest need that training waits for
	demanded bool                  // demand is valid
	closed   bool
	flights  flights
	limit    concurrency
	waiting  bool // a timer waits for the rate limit
	open     openFiles
	watchdog watchdog
}

// NewFetcher starts a Fetcher of the samples of m. The caller must Close it.
func NewFetcher(m *dataset.Manifest, opt FetchOptions) *Fetcher {
	first := firstConcurrency(m.Len(), m.TotalBytes())
	f := &Fetcher{
		manifest: m, opt: opt.withDefaults(), queues: newQueues(),
		paused: make(map[*read]*time.Timer), open: openFiles{},
		flights: flights{all: make(map[*flight]struct{})},
		limit:   newConcurrency(first, MaxFetchConcurrency, false),
	}
	if opt.Concurrency > 0 {
		f.limit = newConcurrency(opt.Concurrency, opt.Concurrency, true)
	}
	return f
}

// Fetch requests sample id, which is needed at time need, in any unit. Lower needs are read first;
// on each storage target, equal ones are read in the order of the calls. len(into) must be the
// sample's size. Fetch returns at once.
//
// done is called exactly once, on another goroutine, with nil when into holds the sample. It must
// not block for long, as it blocks a reader, and must not call Close. Until then into belongs to
// the Fetcher; after an error its content is undefined. The Fetcher does not write to it after
// calling done. Errors: a *SampleError, or ErrClosed.
//
// It panics if id is not in the manifest or len(into) is wrong.
func (f *Fetcher) Fetch(id draw.SampleID, into []byte, need uint64, done func(error)) {
	if int64(id) >= int64(f.manifest.Len()) {
		panic(fmt.Sprintf("staging: Fetch of sample %d, the manifest has %d", id, f.manifest.Len()))
	}
	if size := f.manifest.Size(id); int64(len(into)) != size {
		panic(fmt.Sprintf("staging: Fetch of sample %d into %d bytes, its size is %d", id,
			len(into), size))
	}
	r := &read{id: id, into: into, need: need, done: done}
	r.from, r.to = f.manifest.Bounds(id)
	target := f.opt.TargetOf(id)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		go done(ErrClosed)
		return
	}
	f.asking.Add(1)
	r.seq = f.seq
	f.seq++
	r.target = f.queues.target(max(target, -1))
	if f.manifest.Format(id) != dataset.FormatFile {
		r.shard = f.queues.join(f.manifest.RelPath(id))
	}
	f.queues.push(r)
	f.begin()
}

// Demand announces that training waits for everything that is needed at need or before; later reads
// are ahead of their use, and leave room for these. A need below the last one changes nothing.
// Without Demand all reads are alike.
func (f *Fetcher) Demand(need uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if need >= f.demand {
		f.demand, f.demanded = need, true
		f.begin()
	}
}

// Stats returns the counters of the Fetcher so far.
func (f *Fetcher) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Concurrency = f.limit.limit
	return s
}

// Close closes the Fetcher: reads in flight end, all others get ErrClosed. It returns when the done
// of every earlier read has returned. Closing again only waits.
func (f *Fetcher) Close() {
	f.mu.Lock()
	f.closed = true
	var ended []*read
	for r, timer := range f.paused {
		timer.Stop() // if it is too late to stop, resume finds nothing to do
		delete(f.paused, r)
		ended = append(ended, r)
	}
	for len(f.queues.waiting) > 0 {
		r := f.queues.waiting[0].queue[0]
		f.queues.remove(r)
		ended = append(ended, r)
	}
	for _, r := range ended {
		f.queues.leave(r.shard)
	}
	var idle []*openFile
	for path, file := range f.open {
		if file.users == 0 {
			idle = append(idle, file)
			delete(f.open, path)
		}
	}
	f.mu.Unlock()
	for _, file := range idle {
		file.close()
	}
	go func() {
		for _, r := range ended {
			f.finish(r, ErrClosed)
		}
	}()
	f.asking.Wait()
}

// finish calls done with the outcome of a read, which has left its shard. f.mu is not held.
func (f *Fetcher) finish(r *read, err error) {
	r.done(err)
	f.asking.Done()
}
