package stage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"rankpool/staging/storage"
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
	for _, i := range u.items {
		s := newSource(t, i)
		into := f.buf[f.Bytes : f.Bytes+int(s.item.Size)]
		err := s.fill(ctx, into, 0)
		sum := xxh3.Hash(into)
		if err == nil {
			err = s.through(ctx, sum)
		}
		s.close()
		if err != nil {
			f.add(i, 0, 0, &end{Reason: readReason(err)})
			continue
		}
		f.add(i, 0, len(into), &end{Data: s.item.Size, Sum: sum})
	}
	t.dispatch(f)
}

// readLarge reads one file, a chunk per frame. The last frame has only the end.
func (t *transfer) readLarge(ctx context.Context, u unit) {
	s, h, last := newSource(t, u.items[0]), xxh3.New(), &end{}
	defer s.close()
	var err error
	for err == nil && last.Data < s.item.Size {
		f := t.newFrame(ctx, u.chain)
		if f == nil {
			return
		}
		into := f.buf[:min(s.item.Size-last.Data, int64(cap(f.buf)))]
		if err = s.fill(ctx, into, last.Data); err != nil {
			t.drop(f)
			break
		}
		_, _ = h.Write(into) // a hasher returns no error
		f.add(u.items[0], last.Data, len(into), nil)
		t.dispatch(f)
		last.Data += int64(len(into))
	}
	last.Sum = h.Sum64()
	if err == nil {
		err = s.through(ctx, last.Sum)
	}
	if err != nil {
		last.Reason = readReason(err)
	}
	if f := t.newFrame(ctx, u.chain); f != nil {
		f.add(u.items[0], 0, 0, last)
		t.dispatch(f)
	}
}

// tries is how often a read is tried, firstPause the wait before the second try; it doubles.
// Source: as in the fetcher; a Lustre target fails over in tens of seconds, which the client itself
// waits for.
const (
	tries      = 4
	firstPause = 250 * time.Millisecond
)

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A source is a file that is being read from storage. After an error that may be temporary, the
// file is opened again.
type source struct {
	t      *transfer
	item   *Item
	file   *file
	opened bool
	pause  time.Duration
	tries  int
}

func newSource(t *transfer, i int) *source {
	return &source{t: t, item: &t.plan.Items[i], pause: firstPause}
}

// A sourceError says what is wrong with a file of the source, and what to do.
type sourceError string

func (e sourceError) Error() string { return string(e) }

// changed reports a file that has changed since it was planned.
func changed(what string) error {
	return sourceError("changed while the data set was staged (" + what +
		"); run the same command again when it no longer changes")
}

// wait waits until this rank may read the bytes and open the files.
func (s *source) wait(ctx context.Context, bytes int64, opens int) {
	for ctx.Err() == nil {
		wait := s.t.limit.Take(s.t.opt.now(), bytes, opens)
		if wait == 0 {
			return
		}
		s.t.opt.pause(ctx, wait)
	}
}

// try runs one step until it succeeds, or fails for good; each further try opens the file again.
func (s *source) try(ctx context.Context, step func() error) error {
	for {
		err := s.open(ctx)
		if err == nil {
			err = step()
		}
		s.tries++
		if err == nil || !storage.MayPass(err) || s.tries >= tries || ctx.Err() != nil {
			return err
		}
		s.close()
		s.t.opt.pause(ctx, s.pause)
		s.pause *= 2
	}
}

func (s *source) open(ctx context.Context) error {
	if s.file != nil {
		return nil
	}
	s.wait(ctx, 0, 1)
	file, err := s.t.source.openFile("open", s.item.Path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	s.file = file
	if !s.opened {
		s.opened = true
		s.t.stats.storageReads.Add(1)
	}
	return nil
}

func (s *source) close() {
	if s.file != nil {
		// advice; its failure changes nothing
		_ = unix.Fadvise(s.file.fd, 0, 0, unix.FADV_DONTNEED)
		_ = s.file.close() // it was only read
		s.file = nil
	}
}

// through is called after a file's last byte, and checks that the file is the one that was planned,
// and has not changed since.
func (s *source) through(ctx context.Context, sum uint64) error {
	var i info
	err := s.try(ctx, func() (err error) { i, err = s.file.info(); return err })
	switch {
	case err != nil:
		return err
	case i.kind != Regular || i.inode != s.item.Inode:
		return changed("another file has its name")
	case i.size != s.item.Size:
		return changed(fmt.Sprintf("%d bytes became %d", s.item.Size, i.size))
	case i.modTime != s.item.ModTime:
		return changed("its modification time is another")
	case s.item.Sum != 0 && s.item.Sum != sum:
		return sourceError(fmt.Sprintf("has the checksum %016x, its index says %016x; restore it, or "+
			"index the data set again", sum, s.item.Sum))
	}
	return nil
}

// fill reads all of p at offset off.
func (s *source) fill(ctx context.Context, p []byte, off int64) error {
	return s.try(ctx, func() error {
		s.wait(ctx, int64(len(p)), 0)
		if err := readAll(s.file, p, off); err != nil {
			return err
		}
		s.t.stats.storageBytes.Add(int64(len(p)))
		return nil
	})
}

// readAll reads all of p at offset off.
func readAll(f *file, p []byte, off int64) error {
	got, err := storage.ReadFull(f, p, off)
	if err == nil && got < len(p) {
		err = changed("it ends early")
	}
	return err
}

// readReason describes why a file could not be read.
func readReason(err error) string {
	if _, is := errors.AsType[sourceError](err); is {
		return err.Error()
	}
	return "cannot be read: " + reasonOf(err)
}
