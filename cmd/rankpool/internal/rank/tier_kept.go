package rank

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
	"rankpool/staging/tier/keep"
)

// keptPatience is how long a rank waits at its end until what it has read is written to the disk.
const keptPatience = 10 * time.Second

// openKept opens the folder on the node's disk in which copies of this rank's samples outlive it.
// If the folder cannot be used, it logs a warning, and training continues without it.
func (t *tiers) openKept(place tierPlace, data []mpicache.DataSet, sets []openedSet) {
	for i := range data {
		data[i].KeepsCopies = true // on all ranks alike, even on one without a folder
	}
	if err := t.tryKept(place, data, sets); err != nil {
		t.logger.Warn("this node has no tier; training continues without it", "error", err)
	}
}

func (t *tiers) tryKept(place tierPlace, data []mpicache.DataSet, sets []openedSet) error {
	if err := localDisk(place.dir); err != nil {
		return &os.PathError{Op: "keep copies in", Path: place.dir, Err: err}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	quota := place.size.Bytes
	if place.size.IsShare {
		total := int64(0) // of all samples: ranks here share the folder
		for _, set := range sets {
			total += set.manifest.TotalBytes()
		}
		quota = int64(place.size.Share * float64(total))
	}
	folder, err := keep.OpenFolder(place.dir, quota, place.share)
	if err != nil {
		return err
	}
	t.kept = folder
	for i := range data {
		d := &data[i]
		manifest := sets[i].manifest
		id := manifest.Identity()
		store, openErr := folder.Open(keep.Set{
			Identity: id.Digest.String() + " " + id.Contents.String() + " " + id.Times.String(),
			Samples:  d.Held(), Block: manifest.Block(), Size: d.Size, Rank: t.rank, Ranks: t.ranks,
			Path:    manifest.Path,
			TagsDir: filepath.Join(cache, "rankpool", "tags"), Log: t.logger.With("data", d.Name),
		})
		if openErr != nil {
			err = errors.Join(err, openErr)
			continue
		}
		sets[i].kept, d.Kept = store, store
		t.logger.Info("copies of this rank's samples are kept", "data", d.Name, "folder", place.dir,
			"size", memory.Text(quota))
	}
	return err
}

// close closes the tiers.
func (t *tiers) close(sets []openedSet) {
	for _, d := range t.disks {
		d.End()
	}
	t.closeKept(sets)
}

// closeKept closes the copies after the samples that were read have been written.
func (t *tiers) closeKept(sets []openedSet) {
	if t.kept == nil {
		return
	}
	for _, set := range sets {
		if set.kept != nil {
			c := set.kept.Close(keptPatience)
			t.logger.Debug("kept copies", "data", set.Name, "read", c.Reads, "written", c.Writes,
				"other bytes", c.Changed, "not written", c.Refused)
		}
	}
	_ = t.kept.Close() // it was only read
}
