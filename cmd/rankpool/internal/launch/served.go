package launch

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
)

// A servedSet is a data set that the cache serves.
type servedSet struct {
	name    string
	samples int
	bytes   int64
}

// servedText describes the data sets, of which the first is trained on, and what part of them fits
// into memory; NaN: not known.
func servedText(sets []servedSet, part float64) string {
	named := make([]string, len(sets))
	for i, s := range sets {
		size := ""
		if i == 0 {
			size = " " + english.PluralWord(s.samples, "sample", "") + ", " + memory.Text(s.bytes)
		}
		named[i] = fmt.Sprintf("%s (%s%s)", s.name, humanize.Comma(int64(s.samples)), size)
	}
	text := "serving " + strings.Join(named[:len(named)-1], ", ")
	if len(named) > 1 {
		text += " and "
	}
	text += named[len(named)-1]
	switch {
	case math.IsNaN(part):
		return text
	case part >= 1:
		return text + "; memory for all of them"
	}
	return text + fmt.Sprintf("; memory for %.0f %% of them", math.Floor(100*part))
}

// partInMemory returns what part of the data sets the memory of the ranks holds; NaN: not known.
// folders are those of this machine's ranks, which stand for all if the size is auto.
func (o *Options) partInMemory(folders []string) float64 {
	amount, err := memory.Parse(o.cache.Memory)
	if err != nil { // auto
		for _, folder := range folders {
			slab, err := rank.MemoryNoted(folder)
			if err != nil {
				return math.NaN()
			}
			amount.Bytes += memory.WithoutSlack(slab) / int64(len(folders))
		}
	}
	total := int64(0)
	for _, s := range o.served {
		total += s.bytes
	}
	switch {
	case amount.IsShare:
		return amount.Share
	case total == 0:
		return math.NaN()
	}
	return float64(amount.Bytes) * float64(o.ranks) / float64(total)
}
