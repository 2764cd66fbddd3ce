package layout

import (
	"context"
	"slices"
	"sync"

	"rankpool/scheduler"
)

// A Table holds the target on which each sample of a data set starts, in 2 bytes per sample.
//
// A nil Table is valid, and holds no target. A Table is immutable, so any number of
// goroutines may use it. A method that takes an id panics if the id is not in the data set.
type Table struct {
	targets []uint16             // MDT and NoTarget wrap to the values above maxTarget
	offline []scheduler.SampleID // ascending
}

// Build reads the layouts of all files of a data set. It returns nil if the data set, judged by 64
// files spread over it, is on a file system without layouts.
//
// A file whose layout cannot be read has none. Errors: ctx's end, as its cause.
func Build(ctx context.Context, samples Samples) (*Table, error) {
	return build(ctx, systemCalls{}, samples)
}

func build(ctx context.Context, sys system, samples Samples) (*Table, error) {
	b := newBuilder(samples)
	found, err := walkFiles(ctx, sys, samples, b.add)
	if !found || err != nil {
		return nil, err
	}
	return b.finish(), nil
}

// A builder builds a Table. Targets of different files are written without a lock, everything else
// under mu.
type builder struct {
	samples Samples

	mu    sync.Mutex
	table *Table
}

func newBuilder(samples Samples) *builder {
	return &builder{table: &Table{targets: make([]uint16, samples.Len())}, samples: samples}
}

func (b *builder) add(f file) {
	for id := f.first; id < f.end; id++ {
		b.table.targets[id] = uint16(f.layout.TargetAt(b.samples.Offset(id)))
	}
	if !f.layout.Offline() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id := f.first; id < f.end; id++ {
		b.table.offline = append(b.table.offline, id)
	}
}

// finish sorts what was added in any order.
func (b *builder) finish() *Table {
	slices.Sort(b.table.offline)
	return b.table
}

// TargetOf returns the target on which sample id starts: an OST's index, a BeeGFS target's id, MDT
// or NoTarget.
func (t *Table) TargetOf(id scheduler.SampleID) int {
	if t == nil {
		return NoTarget
	}
	if target := t.targets[id]; target <= maxTarget {
		return int(target)
	}
	return int(int16(t.targets[id]))
}

// Offline returns the samples whose content must be restored from an archive first: HSM-released on
// Lustre, stubs on BeeGFS; ascending. Reading one may wait for a tape, or fail. The caller must not
// change the slice.
func (t *Table) Offline() []scheduler.SampleID {
	if t == nil {
		return nil
	}
	return t.offline
}
