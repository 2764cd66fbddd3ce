package pack

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
)

// shardsAtOnce is how many shards a rank works on: while one is read back the other is written.
const shardsAtOnce = 2

// The kinds of requests, their first byte.
const (
	requestBegin byte = iota // the set-up
	requestShard             // write one
)

// A setup is what another rank needs to work.
type setup struct {
	Manifest   []byte
	Order      []draw.SampleID
	ShardBytes int64
	Dest       string
}

// A crew is rank 0's view of the ranks that write shards.
type crew struct {
	group *index.Group
	own   *worker
}

// configure sends the other ranks the set-up.
func (c *crew) configure(ctx context.Context, s setup) error {
	if c.group.Size() == 1 {
		return nil
	}
	var err error
	if s.Manifest, err = dataset.EncodeManifest(c.own.plan.manifest); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	body := append([]byte{requestBegin}, ranks.Encode(s)...)
	return c.several(ctx, 1, func(ctx context.Context, rank int) error {
		if rank == 0 {
			return nil
		}
		_, err := c.group.Work(ctx, rank, body)
		return err
	})
}

// several calls do n times for each rank, in parallel, and returns the first error.
func (c *crew) several(ctx context.Context, n int,
	do func(ctx context.Context, rank int) error,
) error {
	all, working := errgroup.WithContext(ctx)
	for i := range n * c.group.Size() {
		all.Go(func() error { return do(working, i%c.group.Size()) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// each distributes all shards, in order as far as possible, to ranks as they become free; done has
// the checksums of those that were there. finish is called with each result, by one goroutine at a
// time.
func (c *crew) each(ctx context.Context, done map[int]uint64,
	finish func(task, result) error,
) error {
	queue := make(chan task, c.own.plan.Shards())
	for shard := range cap(queue) {
		queue <- task{shard, done[shard]}
	}
	close(queue)
	var mu sync.Mutex
	return c.several(ctx, shardsAtOnce, func(ctx context.Context, rank int) error {
		for t := range queue {
			if ctx.Err() != nil {
				break
			}
			r, err := c.do(ctx, rank, t)
			if err != nil {
				return err
			}
			mu.Lock()
			err = finish(t, r)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// do makes a shard on a rank.
func (c *crew) do(ctx context.Context, rank int, t task) (r result, err error) {
	if rank == 0 {
		return c.own.do(ctx, t)
	}
	reply, err := c.group.Work(ctx, rank, append([]byte{requestShard}, ranks.Encode(t)...))
	if err != nil {
		return result{}, err
	}
	return r, ranks.Decode(reply, &r)
}

// Serve answers the requests of rank 0, which calls Run, and returns when rank 0 dismisses it. It
// also lists folders for a scan, as Group.Serve does. After ctx's end every answer is an error.
func Serve(ctx context.Context, group *index.Group) {
	s := &server{}
	group.Serve(ctx, s.answer)
	if s.worker != nil {
		s.worker.close()
	}
}

// A server is a rank other than 0. Rank 0 sends no other request while it sets the rank up.
type server struct{ worker *worker }

func (s *server) answer(ctx context.Context, request []byte) ([]byte, error) {
	kind, body := request[0], request[1:]
	if kind == requestBegin {
		return nil, s.begin(body)
	}
	var t task
	if err := ranks.Decode(body, &t); err != nil {
		return nil, err
	}
	r, err := s.worker.do(ctx, t)
	if err != nil {
		return nil, err
	}
	return ranks.Encode(r), nil
}

// begin creates this rank's worker.
func (s *server) begin(body []byte) error {
	var got setup
	if err := ranks.Decode(body, &got); err != nil {
		return err
	}
	m, err := dataset.DecodeManifest(got.Manifest)
	if err != nil {
		return err
	}
	p, err := NewPlan(m, got.Order, got.ShardBytes)
	if err == nil {
		s.worker = newWorker(p, got.Dest, nil)
	}
	return err
}
