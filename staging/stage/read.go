package stage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
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
		f := t.newFrame(ctx, u.chain)
		for _, i := range u.items {
			if f != nil {
				f = t.readFile(ctx, f, i)
			}
		}
		if f == nil { // ctx has ended
			return
		}
		t.dispatch(f)
	}
}

// readFile reads a file into f and, when f is full, into new frames. It returns the last of them,
// which is not dispatched; nil when ctx ends.
func (t *transfer) readFile(ctx context.Context, f *frame, i int) *frame {
	s, err := t.open(ctx, i)
	if err != nil {
		f.add(i, 0, 0, &end{Reason: readReason(err)})
		return f
	}
	defer s.close()
	h, last := xxh3.New(), &end{}
	for err == nil && last.Data < s.item.Size {
		if f.Bytes == cap(f.buf) {
			t.dispatch(f)
			if f = t.newFrame(ctx, f.Chain); f == nil {
				return nil
			}
		}
		into := f.buf[f.Bytes:min(int64(cap(f.buf)), int64(f.Bytes)+s.item.Size-last.Data)]
		if err = s.fill(ctx, into, last.Data); err == nil {
			_, _ = h.Write(into) // a hasher returns no error
			f.add(i, last.Data, len(into), nil)
			last.Data += int64(len(into))
		}
	}
	last.Sum = h.Sum64()
	if err == nil {
		err = s.through(last.Sum)
	}
	if err != nil {
		last.Reason = readReason(err)
	}
	f.add(i, 0, 0, last)
	return f
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// A source is a file that is being read from storage.
type source struct {
	t    *transfer
	item *Item
	file *file
}

// open opens a file, when this rank may open one.
func (t *transfer) open(ctx context.Context, i int) (*source, error) {
	s := &source{t: t, item: &t.plan.Items[i]}
	s.wait(ctx, 0, 1)
	var err error
	if s.file, err = t.source.openFile("open", s.item.Path, unix.O_RDONLY); err != nil {
		return nil, err
	}
	t.stats.storageReads.Add(1)
	return s, nil
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

func (s *source) close() {
	_ = unix.Fadvise(s.file.fd, 0, 0, unix.FADV_DONTNEED) // advice; its failure changes nothing
	_ = s.file.Close()                                    // it was only read
}

// through is called after a file's last byte, and checks that the file is the one that was planned,
// and has not changed since.
func (s *source) through(sum uint64) error {
	i, err := s.file.info()
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

// fill reads all of p at offset off, when this rank may read as much.
func (s *source) fill(ctx context.Context, p []byte, off int64) error {
	s.wait(ctx, int64(len(p)), 0)
	if err := readAll(s.file, p, off); err != nil {
		return err
	}
	s.t.stats.storageBytes.Add(int64(len(p)))
	return nil
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
	return "cannot be read: " + posix.Reason(err)
}
