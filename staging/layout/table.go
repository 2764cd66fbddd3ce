package layout

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"rankpool/scheduler/draw"
	"rankpool/staging/posix"
)

// concurrency is how many layouts are read at a time: as many as a scan has
// requests in flight, since each is a request to the metadata server if the client does not have
// the file's attributes yet.
const concurrency = 16

const (
	// spread is the number of files, evenly spread over the data set, that determine its file systems.
	spread = 64
	// chunkSamples is how many samples a goroutine processes at a time: some milliseconds of work on a
	// local file system.
	chunkSamples = 1024
)

// Samples is a data set: N samples, each a range of a file. The layout of a file is read once for
// its consecutive samples. *dataset.Manifest implements it. It is safe for concurrent use.
type Samples interface {
	Len() int
	// Path returns the absolute path of the file that holds sample id.
	Path(id draw.SampleID) string
	// Offset returns where in its file sample id starts, in bytes.
	Offset(id draw.SampleID) int64
}

// A Table holds the target on which each sample of a data set starts, in 2 bytes per sample.
//
// A nil Table is valid, and holds no target. A Table is immutable, so any number of
// goroutines may use it. A method that takes an id panics if the id is not in the data set.
type Table struct {
	targets []uint16        // NoTarget is above maxTarget
	offline []draw.SampleID // ascending
}

// Build reads the layouts of all files of a data set. It returns nil if the data set, judged by 64
// files spread over it, is on a file system without layouts.
//
// A file whose layout cannot be read has none. Errors: ctx's end, as its cause.
func Build(ctx context.Context, samples Samples) (*Table, error) {
	return build(ctx, systemCalls{}, samples)
}

func build(ctx context.Context, sys system, samples Samples) (*Table, error) {
	lustre, beegfs := fileSystems(ctx, sys, samples)
	if !lustre && !beegfs || ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	n := samples.Len()
	b := &builder{sys: sys, samples: samples, table: &Table{targets: make([]uint16, n)}}
	// Asking statfs for every file would cost BeeGFS another request; the ioctl of a file that is not
	// on it fails.
	b.askBeeGFS = func(system, string) (bool, error) { return beegfs, nil }
	var group errgroup.Group
	group.SetLimit(concurrency)
	for begin := 0; begin < n && ctx.Err() == nil; begin += chunkSamples {
		group.Go(func() error {
			b.chunk(ctx, draw.SampleID(begin), draw.SampleID(min(begin+chunkSamples, n)))
			return nil
		})
	}
	_ = group.Wait() // a file whose layout cannot be read has none
	slices.Sort(b.table.offline)
	return b.table, endOf(ctx)
}

// A builder reads the layouts of all files of a data set.
type builder struct {
	sys       system
	samples   Samples
	askBeeGFS func(system, string) (bool, error)
	table     *Table // targets of different files are written without a lock
	mu        sync.Mutex
}

// chunk reads the layouts of the files that start in [begin, end); the last may extend beyond it.
func (b *builder) chunk(ctx context.Context, begin, end draw.SampleID) {
	at := begin
	if begin > 0 { // the file of the sample before started in an earlier chunk
		at = b.endOfFile(begin, end, b.samples.Path(begin-1))
	}
	for at < end && ctx.Err() == nil {
		path := b.samples.Path(at)
		next := b.endOfFile(at+1, draw.SampleID(b.samples.Len()), path)
		l, _ := of(b.sys, path, b.askBeeGFS)
		b.add(at, next, l)
		at = next
	}
}

// add records the layout of the file that holds the samples [first, end).
func (b *builder) add(first, end draw.SampleID, l Layout) {
	for id := first; id < end; id++ {
		b.table.targets[id] = uint16(l.TargetAt(b.samples.Offset(id)))
		if l.Offline {
			b.mu.Lock()
			b.table.offline = append(b.table.offline, id)
			b.mu.Unlock()
		}
	}
}

// endOfFile returns the first sample in [at, end) that is not in the file at path, else end.
func (b *builder) endOfFile(at, end draw.SampleID, path string) draw.SampleID {
	for at < end && b.samples.Path(at) == path {
		at++
	}
	return at
}

// fileSystems reports which of Lustre and BeeGFS hold any of a spread of the data set's files.
func fileSystems(ctx context.Context, sys system, samples Samples) (lustre, beegfs bool) {
	n := samples.Len()
	for i := range min(n, spread) {
		if ctx.Err() != nil {
			break
		}
		path := samples.Path(draw.SampleID(i * n / min(n, spread)))
		switch magic, _ := sys.magic(path); magic { // ignore a missing file; others count
		case posix.BeeGFSMagic:
			beegfs = true
		case posix.LustreMagic:
			lustre = true
		default: // an overlay that passes the attribute through
			l, _ := of(sys, path, onBeeGFS)
			lustre = lustre || len(l.Components) > 0 || l.Offline
		}
	}
	return lustre, beegfs
}

func endOf(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("layout: %w", context.Cause(ctx))
}

// TargetOf returns the target on which sample id starts: an OST's index, a BeeGFS target's id, or
// NoTarget.
func (t *Table) TargetOf(id draw.SampleID) int {
	if t == nil {
		return NoTarget
	}
	if target := t.targets[id]; target <= maxTarget {
		return int(target)
	}
	return NoTarget
}

// Offline returns the samples whose content must be restored from an archive first: HSM-released on
// Lustre, stubs on BeeGFS; ascending. Reading one may wait for a tape, or fail. The caller must not
// change the slice.
func (t *Table) Offline() []draw.SampleID {
	if t == nil {
		return nil
	}
	return t.offline
}
