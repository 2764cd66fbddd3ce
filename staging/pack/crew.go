package pack

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"sync"

	"rankpool/scheduler"
	"rankpool/staging"
	"rankpool/staging/copier"
)

// shardsAtOnce is how many shards a rank works on: while one is read back the other is written.
const shardsAtOnce = 2

// partBytes is the size of a part of the set-up; a request of a group has at most 16 MiB.
const partBytes = 8 << 20

// The kinds of requests, their first byte.
const (
	requestPart  byte = iota // a part of the set-up
	requestBegin             // its last piece
	requestTask
	requestSync // flush what this rank wrote
)

// A setup is what another rank needs to work.
type setup struct {
	Manifest    []byte
	Order       []scheduler.SampleID
	ShardBytes  int64
	Dest        string
	Sync        copier.SyncPolicy
	Concurrency int
}

// A crew is rank 0's view of the ranks that write shards.
type crew struct {
	group *staging.Group
	own   *worker
}

// configure sends the other ranks the set-up.
func (c *crew) configure(ctx context.Context, s setup) error {
	if c.group.Size() == 1 {
		return nil
	}
	var err error
	if s.Manifest, err = staging.EncodeManifest(c.own.plan.manifest); err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	body := encode(s)
	return c.all(ctx, func(ctx context.Context, rank int) error {
		if rank == 0 {
			return nil
		}
		kind := requestPart
		for rest := body; kind != requestBegin; {
			n := min(partBytes, len(rest))
			if n == len(rest) {
				kind = requestBegin
			}
			if _, err := c.group.Work(ctx, rank, append([]byte{kind}, rest[:n]...)); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

// all calls do for each rank in parallel, and returns the first error.
func (c *crew) all(ctx context.Context, do func(ctx context.Context, rank int) error) error {
	return c.several(ctx, 1, do)
}

// several is all, n times for each rank.
func (c *crew) several(ctx context.Context, n int,
	do func(ctx context.Context, rank int) error,
) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var ranks sync.WaitGroup
	for i := range n * c.group.Size() {
		ranks.Go(func() {
			if err := do(ctx, i%c.group.Size()); err != nil {
				stop(err)
			}
		})
	}
	ranks.Wait()
	return context.Cause(ctx)
}

// each distributes the tasks, in order as far as possible, to ranks as they become free; finish is
// called with each result, by one goroutine at a time.
func (c *crew) each(ctx context.Context, tasks []task,
	finish func(rank int, t task, r result) error,
) error {
	var mu sync.Mutex
	next := 0
	take := func() (t task, found bool) {
		mu.Lock()
		defer mu.Unlock()
		if found = next < len(tasks); found {
			t = tasks[next]
			next++
		}
		return t, found
	}
	return c.several(ctx, shardsAtOnce, func(ctx context.Context, rank int) error {
		for t, found := take(); found && ctx.Err() == nil; t, found = take() {
			r, err := c.do(ctx, rank, t)
			if err != nil {
				return err
			}
			mu.Lock()
			err = finish(rank, t, r)
			mu.Unlock()
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// do has a rank perform a task.
func (c *crew) do(ctx context.Context, rank int, t task) (r result, err error) {
	if rank == 0 {
		return c.own.do(ctx, t)
	}
	reply, err := c.group.Work(ctx, rank, append([]byte{requestTask}, encode(t)...))
	if err != nil {
		return result{}, err
	}
	return r, decode(reply, &r)
}

// syncAll flushes what all ranks have written.
func (c *crew) syncAll(ctx context.Context) error {
	return c.all(ctx, func(ctx context.Context, rank int) error {
		if rank == 0 {
			return c.own.syncAll()
		}
		_, err := c.group.Work(ctx, rank, []byte{requestSync})
		return err
	})
}

func (w *worker) syncAll() error {
	if err := (copier.System{}).SyncAll(w.dest); err != nil {
		return &DestinationError{w.dest, err}
	}
	return nil
}

// Serve answers the requests of the rank 0 that calls Run, and returns when it is dismissed. It
// also lists folders for a scan, as Group.Serve does; concurrency is that of Group.Serve. After
// ctx's end every answer is an error.
func Serve(ctx context.Context, group *staging.Group, concurrency int) {
	s := &server{}
	group.ServeWork(ctx, concurrency, s.answer)
	if s.worker != nil {
		s.worker.close()
	}
}

// A server is a rank other than 0. Rank 0 sends no other request while it sets the rank up.
type server struct {
	body   []byte
	worker *worker
}

func (s *server) answer(ctx context.Context, request []byte) ([]byte, error) {
	kind, body := request[0], request[1:]
	switch kind {
	case requestPart:
		s.body = append(s.body, body...)
		return nil, nil
	case requestBegin:
		return nil, s.begin(append(s.body, body...))
	case requestSync:
		return nil, s.worker.syncAll()
	}
	var t task
	if err := decode(body, &t); err != nil {
		return nil, err
	}
	r, err := s.worker.do(ctx, t)
	if err != nil {
		return nil, err
	}
	return encode(r), nil
}

// begin creates this rank's worker.
func (s *server) begin(body []byte) error {
	var got setup
	if err := decode(body, &got); err != nil {
		return err
	}
	s.body = nil
	m, err := staging.DecodeManifest(got.Manifest)
	if err != nil {
		return err
	}
	p, err := NewPlan(m, got.Order, got.ShardBytes)
	if err == nil {
		s.worker = newWorker(p, got.Dest, got.Sync, got.Concurrency, nil)
	}
	return err
}

func encode(v any) []byte {
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(v); err != nil {
		panic(fmt.Sprintf("pack: a message cannot be encoded: %v", err))
	}
	return out.Bytes()
}

func decode(body []byte, v any) error {
	if err := gob.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return fmt.Errorf("pack: a message from another rank is damaged: %w", err)
	}
	return nil
}
