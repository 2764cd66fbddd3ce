package stage

import (
	"context"
	"sync"

	"github.com/zeebo/xxh3"
)

// readAll reads this rank's units from storage.
func (t *transfer) readAll(todo []unit) {
	work := make(chan unit, len(todo))
	for _, u := range todo {
		work <- u
	}
	close(work)
	var reading sync.WaitGroup
	for range min(t.opt.Readers, len(todo)) {
		reading.Go(func() { t.read(t.ctx, work) })
	}
	reading.Wait()
}

// read is one of the goroutines that read units.
func (t *transfer) read(ctx context.Context, work <-chan unit) {
	for u := range work {
		switch {
		case ctx.Err() != nil:
			return
		case u.large:
			t.readLarge(ctx, u)
		default:
			t.readBundle(ctx, u)
		}
	}
}

// readBundle reads small files into one frame.
func (t *transfer) readBundle(ctx context.Context, u unit) {
	f := t.newFrame(ctx, u.chain)
	if f == nil {
		return
	}
	for _, p := range u.pieces {
		into := f.buf[f.Bytes : f.Bytes+int(p.bytes)]
		s := newSource(t, p)
		err := s.fill(ctx, into, 0)
		sum := xxh3.Hash(into)
		if err == nil {
			err = s.through(ctx, sum)
		}
		s.close()
		if err != nil {
			f.add(p.item, 0, 0, &end{Reason: readReason(err), Of: 1})
			continue
		}
		f.add(p.item, 0, len(into), &end{Data: p.bytes, Sum: sum, Of: 1})
	}
	t.dispatch(f)
}

// readLarge reads one piece, a chunk per frame, without its holes. The last frame has only the end.
func (t *transfer) readLarge(ctx context.Context, u unit) {
	p := u.pieces[0]
	item := &t.plan.Items[p.item]
	s := newSource(t, p)
	defer s.close()
	h, done, last := xxh3.New(), p.offset, &end{Number: int32(p.number), Of: int32(p.of)}
	chunks := func(start, stop int64) error {
		hashZeros(h, start-done)
		for done = start; done < stop; {
			f := t.newFrame(ctx, u.chain)
			if f == nil {
				return context.Cause(ctx)
			}
			into := f.buf[:min(stop-done, int64(cap(f.buf)))]
			if err := s.fill(ctx, into, done); err != nil {
				t.drop(f)
				return err
			}
			_, _ = h.Write(into) // a hasher returns no error
			f.add(p.item, done, len(into), nil)
			t.dispatch(f)
			done += int64(len(into))
			last.Data += int64(len(into))
		}
		return nil
	}
	err := s.try(ctx, s.unchanged)
	switch {
	case err != nil:
	case item.Sparse:
		err = extents(s.nextData(ctx), item.Size, chunks)
	default:
		err = chunks(p.offset, p.offset+p.bytes)
	}
	hashZeros(h, p.offset+p.bytes-done)
	last.Sum = h.Sum64()
	if err == nil {
		err = s.through(ctx, last.Sum)
	}
	if err != nil {
		last.Reason = readReason(err)
	}
	if f := t.newFrame(ctx, u.chain); f != nil {
		f.add(p.item, 0, 0, last)
		t.dispatch(f)
	}
}
