package launch

import (
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/cmd/rankpool/internal/memory"
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

// partInMemory returns what part of the data sets --memory holds on so many ranks; NaN: not known.
func partInMemory(sets []servedSet, wanted string, ranks int) float64 {
	amount, err := memory.Parse(wanted)
	total := int64(0)
	for _, s := range sets {
		total += s.bytes
	}
	switch {
	case err != nil || total == 0: // auto
		return math.NaN()
	case amount.IsShare:
		return amount.Share
	}
	return float64(amount.Bytes) * float64(ranks) / float64(total)
}
