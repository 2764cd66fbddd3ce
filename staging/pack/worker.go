package pack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/shards"
	"rankpool/staging/storage"
)

// verifyConcurrency is how many reads are in flight when a shard is read back; two shards may be
// read back at a time.
const verifyConcurrency = 4

// A worker writes shards on one rank. Its methods may be called by many goroutines.
type worker struct {
	plan    *Plan
	dest    string
	fetcher *storage.Fetcher
	wrote   func(bytes int64)
	create  func(dir, name string) (output, error)
}

// newWorker creates a worker; it must be closed.
func newWorker(p *Plan, dest string, concurrency int,
	create func(dir, name string) (output, error),
) *worker {
	if create == nil {
		create = createTemp
	}
	return &worker{
		plan: p, dest: dest, wrote: func(int64) {}, create: create,
		fetcher: storage.NewFetcher(p.manifest, storage.FetchOptions{Concurrency: concurrency}),
	}
}

func (w *worker) close() { w.fetcher.Close() }

// A task is a shard to write or, if its checksums are known, to check.
type task struct {
	Shard int
	Sums  []uint64 // nil: write it
}

// A result is the result of a task. Sums is nil if a checked shard is missing or wrong.
type result struct {
	Sums    []uint64
	ModTime int64
}

// do performs a task.
func (w *worker) do(ctx context.Context, t task) (result, error) {
	name := w.plan.Name(t.Shard)
	if t.Sums == nil {
		return w.write(ctx, t.Shard, name)
	}
	modTime, err := w.verify(ctx, t.Shard, name, t.Sums)
	switch {
	case ctx.Err() != nil:
		return result{}, context.Cause(ctx)
	case err != nil:
		return result{}, nil // it is written again
	}
	return result{t.Sums, modTime}, nil
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
	if r.Sums, err = w.fill(ctx, shard, out); err != nil {
		_ = out.Close() // err is being reported
		return result{}, err
	}
	err = out.Chmod(0o644)
	if err = errors.Join(err, out.Close()); err != nil {
		return result{}, cannotWrite(w.dest, err)
	}
	if r.ModTime, err = w.verify(ctx, shard, filepath.Base(temp), r.Sums); err != nil {
		return result{}, err
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
	w.wrote(endBytes)
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
	wrote := int64(0)
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
		wrote = f.end(wrote)
	}
	w.wrote(wrote)
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

// verify reads a shard, under its current name, with the readers that training uses, and returns
// its modification time.
func (w *worker) verify(ctx context.Context, shard int, name string, sums []uint64) (
	modTime int64, err error,
) {
	// a pipe in its place, which nobody writes to, would block an os.Open
	in, err := os.OpenFile(filepath.Join(w.dest, name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, cannotWrite(w.dest, err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return 0, cannotWrite(w.dest, err)
	}
	damaged := func(why any) error {
		return fmt.Errorf("pack: %s was written to %s, but reads back differently: %v; check that "+
			"file system", w.plan.Name(shard), w.dest, why)
	}
	if info.Size() != w.plan.Bytes(shard) {
		return 0, damaged(fmt.Sprintf("it has %d bytes instead of %d", info.Size(), w.plan.Bytes(shard)))
	}
	modTime = info.ModTime().UnixNano()
	m, err := w.plan.built(w.dest, shard, shard+1, func(int) string { return name }, []int64{modTime},
		nil)
	if err != nil {
		return 0, err
	}
	contents, err := shards.Tar(in, info.Size())
	if err != nil {
		return 0, damaged(err)
	}
	if err := w.plan.compare(shard, contents); err != nil {
		return 0, damaged(err)
	}
	read, err := index.Checksums(ctx, m, index.ChecksumOptions{Concurrency: verifyConcurrency})
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, damaged(err)
	}
	from, _ := w.plan.span(shard)
	for i, want := range sums {
		if got, _ := read.Checksum(draw.SampleID(i)); got != want {
			return 0, damaged(fmt.Sprintf("the checksum of sample %s is wrong", w.plan.key(from+i)))
		}
	}
	return modTime, nil
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
