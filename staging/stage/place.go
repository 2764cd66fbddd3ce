package stage

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/zeebo/xxh3"
)

// A placing is a file that is being written under its temporary name.
type placing struct {
	create func() (*file, error) // the same file each time

	mu    sync.Mutex
	err   error // the first
	wrote int64 // bytes of finished segments
	end   *end
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
	item := &t.s.plan.Items[s.Item]
	open, _ := t.placings.LoadOrStore(s.Item, &placing{
		create: sync.OnceValues(func() (*file, error) {
			return t.s.dest.create(t.s.dest.temporary(int(s.Item)))
		}),
	})
	p := open.(*placing)
	file, err := p.create()
	if err == nil {
		_, err = file.WriteAt(data, s.Offset)
	}
	p.mu.Lock()
	p.err = cmp.Or(p.err, err)
	p.wrote += int64(len(data))
	p.end = cmp.Or(s.End, p.end)
	complete := p.end != nil && p.wrote == p.end.Data
	p.mu.Unlock()
	if !complete {
		return
	}
	t.placings.Delete(s.Item)
	t.settleItem(item, p.end.Reason, p.finish(t.s.dest, file, item))
}

// finish verifies the file, by reading it back and comparing it with what was read, brings it into
// its final state, records it and gives it its name. After an error the temporary stays until
// staging ends.
func (p *placing) finish(d *destination, file *file, item *Item) error {
	if p.err != nil {
		return p.err
	}
	if p.end.Reason != "" {
		return cmp.Or(file.Close(), d.remove(file.rel))
	}
	sum, err := file.sum(item.Size)
	if err != nil {
		return err
	}
	if sum != p.end.Sum {
		return fmt.Errorf("%s reads back with another checksum (%016x) than it was read with (%016x); "+
			"check that disk", file.Name(), sum, p.end.Sum)
	}
	err = cmp.Or(d.chtime(file.rel, item.ModTime), d.chmod(file.rel, item.Mode))
	if err != nil {
		return err
	}
	i, err := file.info()
	if err != nil {
		return err
	}
	err = cmp.Or(d.journal.add(item.Path, recordOf(d.plan, item, sum, i)), file.Close())
	if err != nil {
		return err
	}
	return d.rename(file.rel, item.Path)
}

// sum returns the checksum of a file of size bytes.
func (f *file) sum(size int64) (uint64, error) {
	h, buffer := xxh3.New(), make([]byte, min(max(size, 1), 256<<10))
	n, err := io.CopyBuffer(h, io.NewSectionReader(f, 0, size), buffer)
	if err == nil && n < size {
		err = fmt.Errorf("%s has %d bytes instead of %d", f.Name(), n, size)
	}
	return h.Sum64(), err
}
