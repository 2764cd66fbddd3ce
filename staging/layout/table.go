package layout

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"rankpool/scheduler/draw"
)

// concurrency is how many layouts are read at a time: as many as a scan has
// requests in flight, since each is a request to the metadata server if the client does not have
// the file's attributes yet.
const concurrency = 16

// spread is the number of files, evenly spread over the data set, that show whether its file system
// has layouts.
const spread = 64

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

// Build reads the layouts of all files of a data set. It returns nil if ctx ends, and if the data
// set, judged by 64 files spread over it, is on a file system without layouts. A file whose layout
// cannot be read has none.
func Build(ctx context.Context, samples Samples) *Table {
	return build(ctx, systemCalls{}, samples)
}

func build(ctx context.Context, sys system, samples Samples) *Table {
	layouts, beegfs := fileSystem(ctx, sys, samples)
	if !layouts {
		return nil
	}
	n := draw.SampleID(samples.Len())
	t := &Table{targets: make([]uint16, n)}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(concurrency)
	for first, end := draw.SampleID(0), draw.SampleID(0); first < n && ctx.Err() == nil; first = end {
		path := samples.Path(first)
		for end = first + 1; end < n && samples.Path(end) == path; {
			end++
		}
		group.Go(func() error {
			l, _ := of(sys, path, beegfs) // a file whose layout cannot be read has none
			for id := first; id < end; id++ {
				t.targets[id] = uint16(l.TargetAt(samples.Offset(id)))
				if l.Offline {
					mu.Lock()
					t.offline = append(t.offline, id)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	_ = group.Wait() // no error
	slices.Sort(t.offline)
	if ctx.Err() != nil {
		return nil
	}
	return t
}

// fileSystem reports whether any of a spread of the data set's files has a layout, and whether any
// is on BeeGFS. A statfs for every file would cost BeeGFS another request each.
func fileSystem(ctx context.Context, sys system, samples Samples) (layouts, beegfs bool) {
	n := samples.Len()
	for i := range min(n, spread) {
		if ctx.Err() != nil {
			break
		}
		path := samples.Path(draw.SampleID(i * n / min(n, spread)))
		beegfs = beegfs || onBeeGFS(sys, path)
		l, _ := of(sys, path, beegfs) // a missing file has none; others count
		layouts = layouts || len(l.Components) > 0 || l.Offline
	}
	return layouts, beegfs
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
