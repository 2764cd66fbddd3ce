package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// A placing is a file that is being written under its temporary name.
type placing struct {
	mu    sync.Mutex // held while the file is created, not while it is written
	file  File
	temp  string
	err   error // the first
	wrote int64 // bytes of finished segments
	data  int64 // bytes of finished pieces
	ends  []end // of pieces, in any order
}

// write is one of the goroutines that write frames.
func (t *transfer) write(ctx context.Context) {
	for {
		select {
		case f := <-t.writes:
			at := 0
			for _, s := range f.Segments {
				t.place(s, f.buf[at:at+int(s.Bytes)])
				at += int(s.Bytes)
			}
			t.used(f)
		case <-ctx.Done():
			return
		}
	}
}

// place writes one segment, and finishes the file with its last one.
func (t *transfer) place(s segment, data []byte) {
	item := &t.plan.Items[s.Item]
	open, _ := t.placings.LoadOrStore(s.Item, &placing{})
	p := open.(*placing)
	file, err := p.begin(t.dest, s.Item, item)
	if err == nil && len(data) > 0 {
		_, err = file.WriteAt(data, s.Offset)
	}
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.wrote += int64(len(data))
	if s.End != nil {
		p.ends = append(p.ends, *s.End)
		p.data += s.End.Data
	}
	complete := len(p.ends) > 0 && len(p.ends) == int(p.ends[0].Of) && p.wrote == p.data
	p.mu.Unlock()
	if !complete {
		return
	}
	t.placings.Delete(s.Item)
	t.settleItem(int(s.Item), p.finish(t.dest, item))
}

// begin creates the file, once.
func (p *placing) begin(d *destination, i int32, item *Item) (File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil || p.err != nil {
		return p.file, p.err
	}
	temp := d.temp(item.Path, fmt.Sprintf("%d-%d", d.rank, i))
	p.file, p.err = d.fsys.Create(temp)
	if p.err == nil {
		p.temp = temp
	}
	return p.file, p.err
}

// A readError is the reader's reason why a file could not be read.
type readError string

func (e readError) Error() string { return string(e) }

// finish verifies the file and gives it its name; after an error nothing of it is left.
func (p *placing) finish(d *destination, item *Item) error {
	err := p.err
	for _, e := range p.ends {
		if e.Reason != "" {
			err = readError(e.Reason)
		}
	}
	if err == nil {
		err = p.complete(d, item)
	}
	if p.file != nil {
		err = cmp.Or(err, p.file.Close())
	}
	if err == nil {
		err = d.fsys.Rename(p.temp, d.path(item))
	}
	if err != nil && p.temp != "" {
		_ = d.fsys.Remove(p.temp) // err is being reported
	}
	return err
}

// complete brings the open file into its final state.
func (p *placing) complete(d *destination, item *Item) error {
	if p.data != item.Size { // it ends in a hole, or is one
		if err := p.file.Truncate(item.Size); err != nil {
			return err
		}
	}
	sum, err := p.verify(d, item)
	if err != nil {
		return err
	}
	if err := p.file.Chtime(item.ModTime); err != nil {
		return err
	}
	info, err := p.file.Info()
	if err != nil {
		return err
	}
	if info.Size != item.Size {
		return fmt.Errorf("has %d bytes at the destination instead of %d", info.Size, item.Size)
	}
	if err := d.keep(p.file, item, recordOf(d.plan, item, sum, info.ModTime)); err != nil {
		return err
	}
	if err := p.file.Chmod(item.Mode); err != nil {
		return err
	}
	if d.sync == SyncFiles {
		return p.file.Sync()
	}
	return nil
}

// verify reads the file back, compares it with what was read, piece by piece, and returns its
// checksum.
func (p *placing) verify(d *destination, item *Item) (uint64, error) {
	if !d.verify { // then there is one piece
		return p.ends[0].Sum, nil
	}
	if len(p.ends) == 1 {
		sum, err := sumFile(p.file, item.Size)
		if err == nil && sum != p.ends[0].Sum {
			err = wrongCopy(p.ends[0].Sum, sum)
		}
		return sum, err
	}
	h := newPieceSums(d.cutBytes)
	if err := hashFile(p.file, item.Size, h); err != nil {
		return 0, err
	}
	h.end()
	for _, e := range p.ends {
		if got := h.sums[e.Number]; got != e.Sum {
			return 0, wrongCopy(e.Sum, got)
		}
	}
	sum := h.whole.Sum64()
	if item.Sum != 0 && item.Sum != sum {
		return 0, readError(wrongSum(item.Sum, sum))
	}
	return sum, nil
}

// wrongCopy reports a copy that differs from what was read.
func wrongCopy(want, got uint64) error {
	return fmt.Errorf("reads back with another checksum (%016x) than it was read with (%016x); "+
		"check the destination's disk", got, want)
}

// keep stores a record with the file, or in the sidecar if the file cannot have extended
// attributes.
func (d *destination) keep(file File, item *Item, r record) error {
	err := file.SetAttribute(SumAttribute, []byte(r.checksum()))
	if err == nil {
		err = file.SetAttribute(SourceAttribute, []byte(r.source()))
	}
	if err == nil {
		return d.index.forget(item.Path, r)
	}
	// EPERM and EACCES: a mount that forbids them. ENOSPC, E2BIG, ERANGE: no room beside the file's
	// other metadata.
	for _, none := range []error{
		unix.ENOTSUP, unix.EPERM, unix.EACCES, unix.ENOSPC, unix.E2BIG,
		unix.ERANGE, unix.ENOSYS,
	} {
		if errors.Is(err, none) {
			return d.index.add(item.Path, r)
		}
	}
	return err
}

// giveUp removes the temporaries of files that will not be finished.
func (t *transfer) giveUp() {
	for _, open := range t.placings.Range {
		if p := open.(*placing); p.file != nil {
			_ = p.file.Close()             // it is given up
			_ = t.dest.fsys.Remove(p.temp) // if this fails, the next run removes it
		}
	}
}
