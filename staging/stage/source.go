package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"rankpool/staging/storage"
)

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
	t     *transfer
	item  *Item
	piece piece
	file  File
	pause time.Duration
	tries int
}

func newSource(t *transfer, p piece) *source {
	return &source{t: t, item: &t.plan.Items[p.item], piece: p, pause: firstPause}
}

// A sourceError says what is wrong with a file of the source, and what to do.
type sourceError string

func (e sourceError) Error() string { return string(e) }

// changed reports a file that has changed since it was planned.
func changed(what string) error {
	return sourceError("changed while the data set was staged (" + what +
		"); run the same command again when it no longer changes")
}

// wrongSum reports a file whose bytes are not those that were indexed.
func wrongSum(want, got uint64) sourceError {
	return sourceError(fmt.Sprintf("has the checksum %016x, its index says %016x; restore it, or "+
		"index the data set again", got, want))
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
	file, err := s.t.opt.Source.Follow(join(s.t.plan.Root, s.item.Path))
	if err != nil {
		return err
	}
	s.file = file
	if s.piece.number == 0 {
		s.t.stats.storageReads.Add(1)
	}
	return s.unchanged()
}

func (s *source) close() {
	if s.file != nil {
		s.file.Forget()
		_ = s.file.Close() // it was only read
		s.file = nil
	}
}

// unchanged compares the open file with the plan.
func (s *source) unchanged() error {
	info, err := s.file.Info()
	switch {
	case err != nil:
		return err
	case info.Kind != Regular || info.Inode != s.item.Inode:
		return changed("another file has its name")
	case info.Size != s.item.Size:
		return changed(fmt.Sprintf("%d bytes became %d", s.item.Size, info.Size))
	case info.ModTime != s.item.ModTime:
		return changed("its modification time is another")
	}
	return nil
}

// through is called after a piece's last byte, and checks that nothing has changed while it was
// read. The index's checksum of a file in pieces is compared when the file is complete.
func (s *source) through(ctx context.Context, sum uint64) error {
	if err := s.try(ctx, s.unchanged); err != nil {
		return err
	}
	if s.item.Sum != 0 && s.piece.of == 1 && s.item.Sum != sum {
		return wrongSum(s.item.Sum, sum)
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

// nextData is File.NextData, with retries.
func (s *source) nextData(ctx context.Context) nextData {
	return func(off int64) (start, end int64, found bool, err error) {
		err = s.try(ctx, func() (err error) {
			start, end, found, err = s.file.NextData(off)
			return err
		})
		return start, end, found, err
	}
}

// readAll reads all of p at offset off.
func readAll(file File, p []byte, off int64) error {
	got, err := storage.ReadFull(file, p, off)
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

// nextData finds data as File.NextData does.
type nextData func(off int64) (start, end int64, found bool, err error)

// extents calls each for every stretch [start, end) of data in a file of size bytes.
func extents(next nextData, size int64, each func(start, end int64) error) error {
	for off := int64(0); off < size; {
		start, end, found, err := next(off)
		if err != nil {
			return err
		}
		if !found || start >= size {
			return nil
		}
		if err := each(start, min(end, size)); err != nil {
			return err
		}
		off = end
	}
	return nil
}

// zeros is the content of a hole.
var zeros [64 << 10]byte

func hashZeros(h io.Writer, n int64) {
	for ; n > 0; n -= int64(len(zeros)) {
		_, _ = h.Write(zeros[:min(n, int64(len(zeros)))]) // a hasher returns no error
	}
}
