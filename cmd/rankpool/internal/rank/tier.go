package rank

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
	"rankpool/mpicache/slab"
	"rankpool/scheduler/draw"
	"rankpool/staging/posix"
	"rankpool/staging/tier"
	"rankpool/staging/tier/keep"
)

// A tierPlace is where each rank keeps samples that leave its memory, and how much of it. With
// keep, the rank keeps copies of what it reads, which outlive it.
type tierPlace struct {
	dir  string
	size memory.Amount
	keep bool
	// share: read the copies of other users, and let them read those of this one.
	share bool
}

// parseTier parses "/nvme:800GiB" (a size on each node) or "/nvme:30%" (a share of the data over
// all nodes), and "/nvme:800GiB,keep" or "/nvme:800GiB,share". The folder may contain colons. ""
// means no tier.
func parseTier(text string) (tierPlace, error) {
	if text == "" {
		return tierPlace{}, nil
	}
	at := strings.LastIndexByte(text, ':')
	if at <= 0 {
		return tierPlace{}, fmt.Errorf(
			"%q is not DIR:SIZE, such as /local/scratch:800GiB or /local/scratch:30%%", text)
	}
	sizeText, how, told := strings.Cut(text[at+1:], ",")
	if told && how != "keep" && how != "share" {
		return tierPlace{}, fmt.Errorf("%q ends in %q: what may follow the size is \",keep\" or "+
			"\",share\"", text, how)
	}
	size, err := memory.Parse(sizeText)
	if err == nil && size.Share == 0 && size.Bytes == 0 {
		err = fmt.Errorf("%q has no size: leave --tier out for none", text)
	}
	return tierPlace{dir: text[:at], size: size, keep: told, share: how == "share"}, err
}

// checkTier validates --tier and makes its folder absolute.
func (o *CacheOptions) checkTier() error {
	place, err := parseTier(o.Tier)
	if err != nil {
		return exit.Usagef("--tier: %w", err)
	}
	if place.dir == "" {
		return nil
	}
	abs, err := filepath.Abs(place.dir)
	if err != nil {
		return err
	}
	o.Tier = abs + o.Tier[len(place.dir):]
	return nil
}

// Tier is where a rank on this node would keep samples on a disk.
type Tier struct {
	Dir      string
	Bytes    int64 // that it may fill; 0: a share of the data
	Unusable error // why a rank would do without it
}

// FindTier returns what the value of --tier means on this node. The error is about its form.
func FindTier(text string) (t Tier, err error) {
	place, err := parseTier(text)
	if err != nil {
		return t, err
	}
	t = Tier{Dir: place.dir, Bytes: place.size.Bytes}
	if t.Dir, err = filepath.Abs(place.dir); err != nil {
		return t, err
	}
	if err := localDisk(t.Dir); err != nil {
		t.Unusable = fmt.Errorf("%s: %w", t.Dir, err)
	} else if place.keep {
		t.Unusable = keep.Check(t.Dir, place.share)
	}
	return t, nil
}

// The tiers are what the rank keeps on the node's disk.
type tiers struct {
	opt         *Options
	logger      *slog.Logger
	rank, ranks int

	disks []*tier.Disk
	kept  *keep.Folder // nil: no copies are kept
}

// open sets each data set's part of the ranks' tiers, by the bytes that they own, and opens
// this rank's. If a folder cannot be used, it logs a warning, and training continues without a
// tier.
func (t *tiers) open(data []mpicache.DataSet, sets []openedSet) error {
	place, err := parseTier(t.opt.Tier)
	if err != nil || place.dir == "" {
		return err
	}
	if place.keep {
		t.openKept(place, data, sets)
		return nil
	}
	place.divide(data, t.ranks) // on all ranks alike, even on one without a folder
	for i := range data {
		d := &data[i]
		bytes := d.TierBytes[t.rank]
		if bytes == 0 {
			continue
		}
		disk, err := tier.Open(place.dir,
			tier.Options{SizeBytes: bytes, BlockBytes: d.TierBlockBytes})
		if err != nil {
			t.logger.Warn("this node has no tier; training continues without it", "data", d.Name,
				"error", err)
			continue
		}
		t.disks = append(t.disks, disk)
		d.Tier = disk
		t.logger.Info("tier of this rank", "data", d.Name, "folder", place.dir,
			"size", memory.Text(bytes), "blocks", memory.Text(d.TierBlockBytes))
	}
	return nil
}

// divide sets the data sets' TierBytes and TierBlockBytes. A share counts the bytes that a rank
// owns in whole blocks, so that 100 % hold all of them.
func (p tierPlace) divide(data []mpicache.DataSet, ranks int) {
	total := make([]int64, ranks)
	for i := range data {
		d := &data[i]
		d.TierBytes = ownedBytes(d, ranks, 1)
		for r, owned := range d.TierBytes {
			total[r] += owned
		}
	}
	for i := range data {
		d := &data[i]
		all, largest := int64(0), int64(0)
		for r, owned := range d.TierBytes {
			all += owned
			largest = max(largest, p.part(owned, total[r]))
		}
		d.TierBlockBytes = tier.BlockBytes(largest, all/int64(max(d.Held(), 1)))
		inBlocks := ownedBytes(d, ranks, d.TierBlockBytes)
		for r, owned := range d.TierBytes {
			bytes := p.part(owned, total[r])
			if p.size.IsShare {
				bytes = p.part(inBlocks[r], 0)
			}
			d.TierBytes[r] = bytes / d.TierBlockBytes * d.TierBlockBytes
		}
	}
}

// part returns a data set's share of a rank's tier, given how many of its bytes the rank owns.
func (p tierPlace) part(owned, total int64) int64 {
	if p.size.IsShare {
		return int64(p.size.Share * float64(owned))
	}
	return int64(float64(p.size.Bytes) * float64(owned) / float64(max(total, 1)))
}

// ownedBytes returns the size in whole blocks of the samples that each rank owns.
func ownedBytes(d *mpicache.DataSet, ranks int, blockBytes int64) []int64 {
	owned := make([]int64, ranks)
	for id := range draw.SampleID(d.Held()) {
		owned[d.Owner(id, ranks)] += (slab.Footprint(d.Size(id)) +
			blockBytes - 1) / blockBytes * blockBytes
	}
	return owned
}

// localDisk returns nil for a folder on a disk of this node that this process may write to.
func localDisk(dir string) error {
	if info, err := os.Stat(dir); err != nil {
		return Pathless(err)
	} else if !info.IsDir() {
		return unix.ENOTDIR
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	switch what := posix.TypeOf(st.Type); what.Reach {
	case posix.Memory:
		return fmt.Errorf("it is memory (%s)", what.Name)
	case posix.Shared:
		return fmt.Errorf("it is shared storage (%s)", what.Name)
	}
	return nil
}
