package pack

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
	"rankpool/staging/shards"
	"rankpool/staging/storage"
)

// A worker writes shards on one rank. Its methods may be called by many goroutines.
type worker struct {
	plan    *Plan
	dest    string
	fetcher *storage.Fetcher
	create  func(dir, name string) (output, error)
}

// newWorker creates a worker; it must be closed.
func newWorker(p *Plan, dest string, create func(dir, name string) (output, error)) *worker {
	if create == nil {
		create = createTemp
	}
	return &worker{
		plan: p, dest: dest, create: create,
		fetcher: storage.NewFetcher(p.manifest, storage.FetchOptions{}),
	}
}

func (w *worker) close() { w.fetcher.Close() }

// A task is a shard to make, or to keep if its samples have this checksum.
type task struct {
	Shard int
	Sum   uint64 // 0: it is not there
}

// A result describes a shard that is whole.
type result struct {
	Sums    []uint64 // of its samples
	ModTime int64
	Kept    bool // it was there
}

// sum returns the checksum of the samples' checksums.
func (r *result) sum() uint64 {
	h := xxh3.New()
	_ = binary.Write(h, binary.LittleEndian, r.Sums) // a hash returns no error
	return h.Sum64()
}

// do makes a shard, unless an earlier run did.
func (w *worker) do(ctx context.Context, t task) (result, error) {
	name := w.plan.Name(t.Shard)
	if t.Sum != 0 {
		if r, err := w.verify(t.Shard, name); err == nil && r.sum() == t.Sum {
			r.Kept = true
			return r, nil
		}
	}
	return w.write(ctx, t.Shard, name)
}

// write writes and verifies a shard under name; if it fails, it leaves no file.
func (w *worker) write(ctx context.Context, shard int, name string) (r result, err error) {
	out, err := w.create(w.dest, name)
	if err != nil {
		return result{}, cannotWrite(w.dest, err)
	}
	temp := out.Name()
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	sums, err := w.fill(ctx, shard, out)
	if err != nil {
		_ = out.Close() // err is being reported
		return result{}, err
	}
	if err = errors.Join(out.Chmod(0o644), out.Sync(), out.Close()); err != nil {
		return result{}, cannotWrite(w.dest, err)
	}
	r, err = w.verify(shard, filepath.Base(temp))
	if err == nil && !slices.Equal(r.Sums, sums) {
		err = errors.New("the checksum of a sample is wrong")
	}
	if err != nil {
		return result{}, fmt.Errorf("pack: %s was written to %s, but reads back differently: %w; check "+
			"that file system", name, w.dest, err)
	}
	if err = os.Rename(temp, filepath.Join(w.dest, name)); err != nil {
		return result{}, cannotWrite(w.dest, err)
	}
	return r, nil
}

// fill writes a shard's bytes, and returns the checksums of its samples.
func (w *worker) fill(ctx context.Context, shard int, out output) ([]uint64, error) {
	from, to := w.plan.span(shard)
	sums := make([]uint64, 0, to-from)
	buffered := bufio.NewWriterSize(out, 1<<20)
	err := readInOrder(ctx, w.plan, w.fetcher, from, to, func(place int, sample []byte) error {
		sums = append(sums, dataset.ChecksumOf(sample))
		return w.add(buffered, place, sample)
	})
	if err != nil {
		return nil, err
	}
	_, err = buffered.Write(make([]byte, endBytes))
	if err = errors.Join(err, buffered.Flush()); err != nil {
		return nil, cannotWrite(w.dest, err)
	}
	return sums, nil
}

// zeros pad blocks.
var zeros [blockBytes]byte

// add writes the files of one sample.
func (w *worker) add(out *bufio.Writer, place int, sample []byte) error {
	files, err := w.plan.files(nil, place)
	if err != nil {
		return err
	}
	for i := range files {
		f := &files[i]
		text := []byte(w.plan.labelText(w.plan.order[place]))
		if !f.added {
			text, sample = sample[:f.size], sample[f.size:]
		}
		if !f.added && f.kind == classKind {
			if err := w.plan.checkClass(place, text); err != nil {
				return err
			}
		}
		header, err := w.plan.header(f, place)
		if err != nil {
			return err
		}
		for _, part := range [][]byte{header, text, zeros[:padding(f.size)]} {
			if _, err := out.Write(part); err != nil {
				return cannotWrite(w.dest, err)
			}
		}
	}
	return nil
}

// checkClass returns an error if a sample's own "cls" file would give it another label for a reader
// of the shard alone.
func (p *Plan) checkClass(place int, text []byte) error {
	id := p.order[place]
	label, isNumber := shards.ClassNumber(text)
	if p.label == isNumber && (!isNumber || label == p.manifest.Label(id)) {
		return nil
	}
	return fmt.Errorf("pack: sample %d (%s) has a member .cls that does not hold its label, %d: "+
		"give that member another extension",
		id, p.manifest.RelPath(id), p.manifest.Label(id))
}

// verify reads a shard, under its current name.
func (w *worker) verify(shard int, name string) (r result, err error) {
	// a pipe in its place, which nobody writes to, would block an os.Open
	in, err := os.OpenFile(filepath.Join(w.dest, name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return r, err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return r, err
	}
	if info.Size() != w.plan.Bytes(shard) {
		return r, fmt.Errorf("it has %d bytes instead of %d", info.Size(), w.plan.Bytes(shard))
	}
	r.ModTime = info.ModTime().UnixNano()
	found, err := shards.Tar(in, info.Size())
	if err != nil {
		return r, fmt.Errorf("it %w", err)
	}
	if err := w.plan.compare(shard, found); err != nil {
		return r, err
	}
	from, to := w.plan.span(shard)
	first := uint32(0)
	for place := from; place < to; place++ {
		sample := make([]byte, 0, w.plan.size(place))
		for _, m := range found.Members[first:found.Ends[place-from]] {
			if m.Size > int64(cap(sample)-len(sample)) {
				break // the label, which is not of the sample
			}
			part := sample[len(sample) : len(sample)+int(m.Size)]
			if _, err := in.ReadAt(part, m.Offset); err != nil {
				return r, err
			}
			sample = sample[:len(sample)+int(m.Size)]
		}
		first = found.Ends[place-from]
		r.Sums = append(r.Sums, dataset.ChecksumOf(sample))
	}
	return r, nil
}

// compare returns how the samples found in a shard differ from the plan's.
func (p *Plan) compare(shard int, found *shards.Contents) error {
	from, to := p.span(shard)
	if len(found.Samples) != to-from {
		return fmt.Errorf("it has %d samples instead of %d", len(found.Samples), to-from)
	}
	at, first := int64(0), uint32(0)
	var files []file
	for i, end := range found.Ends {
		var err error
		if files, err = p.files(files[:0], from+i); err != nil {
			return err
		}
		members := found.Members[first:end]
		first = end
		good := len(members) == len(files) && (!p.label ||
			found.Labels != nil && int(found.Labels[i]) == p.manifest.Label(p.order[from+i]))
		for j := range files {
			f := &files[j]
			good = good && members[j].Range == (shards.Range{Offset: f.data(at), Size: f.size}) &&
				found.Kinds[members[j].Kind] == f.kind
			at = f.end(at)
		}
		if !good {
			return fmt.Errorf("sample %s has other members or another label", p.key(from+i))
		}
	}
	return nil
}
