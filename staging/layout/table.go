package layout

import (
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"sync"

	"rankpool/scheduler"
)

// The targets of 16 bits that stand for those below zero.
const (
	storedMDT = 0xFFFE
	storedNo  = 0xFFFF
)

// A Table tells for every sample of a data set on which target it starts, in 2 bytes a sample, and for files of more
// than one stripe the whole layout, of which equal ones are kept once.
//
// A nil Table is that of a data set of which nothing is known; every method works on it. A Table never changes once
// it is made, so any number of goroutines may use it. A method that takes an id panics when the id is not in the data set.
type Table struct {
	targets []uint16
	striped []stripedFile        // in order of first
	offline []scheduler.SampleID // ascending
	unread  int64
	problem error
}

// A stripedFile is a file of more than one stripe, which holds the samples [first, end).
type stripedFile struct {
	first, end uint32 // end is exact: ids stay below 2³²-1, the number of samples
	layout     *Layout
}

// Build reads the layouts of all files of a data set. It returns nil when the data set, judged by 64 files spread
// over it, lies on a file system that tells none.
//
// A file whose layout cannot be read only has none; Problem tells. Errors: ctx's end, as its cause.
func Build(ctx context.Context, samples Samples, opt Options) (*Table, error) {
	return build(ctx, systemCalls{}, samples, opt)
}

func build(ctx context.Context, sys system, samples Samples, opt Options) (*Table, error) {
	b := newBuilder(samples)
	found, err := walkFiles(ctx, sys, samples, opt, b.add)
	if !found || err != nil {
		return nil, err
	}
	return b.finish(), nil
}

// A builder makes a Table. Targets of different files are written without a lock, all else under mu.
type builder struct {
	samples Samples

	mu           sync.Mutex
	table        *Table
	equal        map[string]*Layout // the layouts kept, by layoutKey
	firstProblem int                // the sample of table.problem
}

func newBuilder(samples Samples) *builder {
	return &builder{table: &Table{targets: make([]uint16, samples.Len())}, samples: samples, equal: map[string]*Layout{}}
}

func (b *builder) add(f file) {
	var end int64
	for i := f.first; i < f.end; i++ {
		id := scheduler.SampleID(i)
		b.table.targets[i] = stored(f.layout.TargetAt(b.samples.Offset(id)))
		end = max(end, b.samples.Offset(id)+b.samples.Size(id))
	}
	striped := len(f.layout.Components) > 0 && end > f.layout.Components[0].StripeBytes
	if !striped && !f.layout.Offline() && f.err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.table
	if striped {
		t.striped = append(t.striped, stripedFile{uint32(f.first), uint32(f.end), b.keep(f.layout)})
	}
	if f.layout.Offline() {
		for i := f.first; i < f.end; i++ {
			t.offline = append(t.offline, scheduler.SampleID(i))
		}
	}
	if f.err != nil {
		if t.problem == nil || f.first < b.firstProblem {
			t.problem, b.firstProblem = f.err, f.first
		}
		t.unread++
	}
}

// finish puts what came in any order in that of the samples.
func (b *builder) finish() *Table {
	t := b.table
	slices.SortFunc(t.striped, func(a, b stripedFile) int { return cmp.Compare(a.first, b.first) })
	slices.Sort(t.offline)
	return t
}

// keep returns the one copy of a layout that all files with an equal one share.
func (b *builder) keep(l Layout) *Layout {
	key := string(layoutKey(l))
	kept := b.equal[key]
	if kept == nil {
		kept = &l
		b.equal[key] = kept
	}
	return kept
}

// layoutKey returns bytes that two layouts share only when they are equal.
func layoutKey(l Layout) []byte {
	var key []byte
	text := func(s string) {
		key = binary.AppendUvarint(key, uint64(len(s)))
		key = append(key, s...)
	}
	number := func(n int64) { key = binary.AppendVarint(key, n) }
	text(l.FileSystem)
	text(string(l.Kind))
	text(l.Pool)
	number(int64(l.Mirrors))
	for _, offline := range []bool{l.Released, l.Stub} {
		if offline {
			number(1)
		} else {
			number(0)
		}
	}
	for _, c := range l.Components {
		number(c.Start)
		number(c.End)
		number(c.StripeBytes)
		number(int64(len(c.Targets)))
		for _, target := range c.Targets {
			number(int64(target))
		}
	}
	return key
}

// TargetOf returns the target on which sample id starts: an OST's index, a BeeGFS target's id, MDT or NoTarget.
func (t *Table) TargetOf(id scheduler.SampleID) int {
	if t == nil {
		return NoTarget
	}
	switch target := t.targets[id]; target {
	case storedMDT:
		return MDT
	case storedNo:
		return NoTarget
	default:
		return int(target)
	}
}

// Pieces yields the parts of [offset, offset+length) of the file that holds sample id, cut where a stripe ends, each
// with its target. A file of one stripe, and one that nothing is known of, is one piece.
func (t *Table) Pieces(id scheduler.SampleID, offset, length int64) iter.Seq[Piece] {
	if l := t.stripedLayout(id); l != nil {
		return l.Pieces(offset, length)
	}
	checkRange(offset, length)
	return func(yield func(Piece) bool) {
		if length > 0 {
			yield(Piece{offset, length, t.TargetOf(id)})
		}
	}
}

// Offline returns the samples whose content must be brought back from an archive first: HSM-released on Lustre, stubs
// on BeeGFS; ascending. Reading one may wait for a tape, or fail. The caller must not change the slice.
func (t *Table) Offline() []scheduler.SampleID {
	if t == nil {
		return nil
	}
	return t.offline
}

// IsOffline reports whether sample id is one of Offline.
func (t *Table) IsOffline(id scheduler.SampleID) bool {
	_, found := slices.BinarySearch(t.Offline(), id)
	return found
}

// Problem returns how many files have a layout that could not be read, and why the first of them could not; nil
// when all could.
func (t *Table) Problem() (files int64, first error) {
	if t == nil {
		return 0, nil
	}
	return t.unread, t.problem
}

// stripedLayout returns the layout of the file of sample id when it has more than one stripe, else nil.
func (t *Table) stripedLayout(id scheduler.SampleID) *Layout {
	if t == nil {
		return nil
	}
	after, _ := slices.BinarySearchFunc(t.striped, uint32(id), func(f stripedFile, id uint32) int {
		if f.end <= id {
			return -1
		}
		return 1
	})
	if after == len(t.striped) || t.striped[after].first > uint32(id) {
		return nil
	}
	return t.striped[after].layout
}

func stored(target int) uint16 {
	switch target {
	case MDT:
		return storedMDT
	case NoTarget:
		return storedNo
	}
	return uint16(target)
}
