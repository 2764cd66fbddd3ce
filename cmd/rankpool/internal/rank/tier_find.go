package rank

import (
	"fmt"
	"path/filepath"

	"rankpool/staging/tier/keep"
)

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
	if place.dir == autoScratch {
		t.Dir, _, t.Unusable = findScratch()
		return t, nil
	}
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
