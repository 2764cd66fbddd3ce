package rank

import (
	"context"
	"log/slog"
	"sync/atomic"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	storage "rankpool/staging/layout"
)

// ownTargets are the storage targets of the samples that a rank owns. A rank reads few others, so
// all ranks together query the layout of each file about once. The layouts are read in the
// background: no target is known before they are, or if the file system does not report them.
type ownTargets struct {
	manifest    *dataset.Manifest
	rank, ranks int
	table       atomic.Pointer[storage.Table]
}

// Len implements layout.Samples: entry k is the k-th sample that the rank owns.
func (t *ownTargets) Len() int {
	n := t.manifest.Len() / t.ranks
	if int(t.id(draw.SampleID(n))) < t.manifest.Len() {
		n++
	}
	return n
}

// id returns the k-th sample that the rank owns: of each block of t.ranks ids, it owns one.
func (t *ownTargets) id(k draw.SampleID) draw.SampleID {
	first := int(k) * t.ranks
	for i := range t.ranks {
		if id := draw.SampleID(first + i); draw.Owner(id, t.ranks) == t.rank {
			return id
		}
	}
	return k
}

// Path implements layout.Samples.
func (t *ownTargets) Path(k draw.SampleID) string { return t.manifest.Path(t.id(k)) }

// Offset implements layout.Samples.
func (t *ownTargets) Offset(k draw.SampleID) int64 { return t.manifest.Offset(t.id(k)) }

// find reads the layouts, and logs which files the file system has archived.
func (t *ownTargets) find(ctx context.Context, log *slog.Logger) {
	table := storage.Build(ctx, t)
	if table == nil {
		return
	}
	t.table.Store(table)
	if gone := table.Offline(); len(gone) > 0 {
		log.Warn("files are not on disk: reading them brings them back first, which is slow; "+
			"restore them before the job",
			"samples", len(gone), "first", t.Path(gone[0]))
	}
}

// of returns the target of a sample, below 0 if it is not known.
func (t *ownTargets) of(id draw.SampleID) int {
	table := t.table.Load()
	if table == nil || draw.Owner(id, t.ranks) != t.rank {
		return storage.NoTarget
	}
	return table.TargetOf(id / draw.SampleID(t.ranks))
}
