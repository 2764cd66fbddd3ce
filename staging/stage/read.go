package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// readAll reads this rank's files from storage.
func (t *transfer) readAll() {
	work := make(chan int, len(t.share.items))
	for _, i := range t.share.items {
		work <- i
	}
	close(work)
	var reading sync.WaitGroup
	for range min(t.s.opt.Readers, len(t.share.items)) {
		reading.Go(func() { t.read(t.ctx, work) })
	}
	reading.Wait()
}

// frameFiles bounds the files of a frame, so that storage's latency, paid once per file, does not
// delay it for long.
const frameFiles = 64

// read is one of the goroutines that read files. Small ones that have the same chain share a frame.
func (t *transfer) read(ctx context.Context, work <-chan int) {
	var f *frame
	files := 0
	for i := range work {
		chain := chain(t.needs, i, t.s.mux.Rank())
		if f != nil && (files == frameFiles || !slices.Equal(f.Chain, chain) ||
			int64(f.Bytes)+t.s.plan.Items[i].Size > int64(t.s.opt.ChunkBytes)) {
			t.dispatch(f)
			f, files = nil, 0
		}
		if f == nil {
			f = t.newFrame(ctx, chain)
		}
		if f != nil {
			f = t.readFile(ctx, f, i)
			files++
		}
		if f == nil { // ctx has ended
			return
		}
	}
	if f != nil {
		t.dispatch(f)
	}
}

// readFile reads a file into f and, when f is full, into new frames. It returns the last of them,
// which is not dispatched; nil when ctx ends.
func (t *transfer) readFile(ctx context.Context, f *frame, i int) *frame {
	item := &t.s.plan.Items[i]
	err := t.openLimit.Wait(ctx)
	var file *file
	if err == nil {
		file, err = t.source.openFile("open", item.Path, unix.O_RDONLY)
	}
	if err != nil {
		f.add(i, 0, 0, &end{Reason: readReason(err)})
		return f
	}
	atomic.AddInt64(&t.s.counts.StorageReads, 1)
	defer func() {
		_ = unix.Fadvise(file.fd, 0, 0, unix.FADV_DONTNEED) // advice; its failure changes nothing
		_ = file.Close()                                    // it was only read
	}()
	h, last := xxh3.New(), &end{}
	for err == nil && last.Data < item.Size {
		if f.Bytes == cap(f.buf) {
			t.dispatch(f)
			if f = t.newFrame(ctx, f.Chain); f == nil {
				return nil
			}
		}
		into := f.buf[f.Bytes:min(int64(cap(f.buf)), int64(f.Bytes)+item.Size-last.Data)]
		if err = t.fill(ctx, file, into, last.Data); err == nil {
			_, _ = h.Write(into) // a hasher returns no error
			f.add(i, last.Data, len(into), nil)
			last.Data += int64(len(into))
		}
	}
	last.Sum = h.Sum64()
	if err == nil {
		err = item.check(file, last.Sum)
	}
	if err != nil {
		last.Reason = readReason(err)
	}
	f.add(i, 0, 0, last)
	return f
}

// fill reads all of p at offset off, when this rank may read as much.
func (t *transfer) fill(ctx context.Context, f *file, p []byte, off int64) error {
	if err := t.byteLimit.WaitN(ctx, len(p)); err != nil {
		return err
	}
	_, err := f.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		err = changed("it ends early")
	}
	if err == nil {
		atomic.AddInt64(&t.s.counts.StorageBytes, int64(len(p)))
	}
	return err
}

// A readError is the reader's reason why a file could not be read.
type readError string

func (e readError) Error() string { return string(e) }

// changed reports a file that has changed since it was planned.
func changed(what string) error {
	return readError("changed while the data set was staged (" + what +
		"); run the same command again when it no longer changes")
}

// check is called after a file's last byte, and checks that the file is the one that was planned,
// and has not changed since.
func (item *Item) check(f *file, sum uint64) error {
	i, err := f.info()
	switch {
	case err != nil:
		return err
	case i.Kind != Regular || i.Inode != item.Inode:
		return changed("another file has its name")
	case i.Size != item.Size:
		return changed(fmt.Sprintf("%d bytes became %d", item.Size, i.Size))
	case i.ModTime != item.ModTime:
		return changed("its modification time is another")
	case item.Sum != 0 && item.Sum != sum:
		return readError(fmt.Sprintf("has the checksum %016x, its index says %016x; restore it, or "+
			"index the data set again", sum, item.Sum))
	}
	return nil
}

// readReason describes why a file could not be read.
func readReason(err error) string {
	if _, is := errors.AsType[readError](err); is {
		return err.Error()
	}
	return "cannot be read: " + posix.Reason(err)
}
