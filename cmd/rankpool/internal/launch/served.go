package launch

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache/door"
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

// partInMemory returns what part of the data sets fits into the memory of so many ranks: what
// --memory says, or else what the rank at a door has; NaN: not known.
func partInMemory(sets []servedSet, wanted, statusDoor string, ranks int) float64 {
	if amount, err := memory.Parse(wanted); err == nil && amount.IsShare {
		return amount.Share
	}
	total := int64(0)
	for _, s := range sets {
		total += s.bytes
	}
	c, err := control.Dial(statusDoor)
	if err != nil {
		return math.NaN()
	}
	defer func() { _ = c.Close() }() // it has answered, or not
	reply, err := c.Call(door.KindStatus, nil)
	var status door.Status
	if err != nil || json.Unmarshal(reply, &status) != nil || len(status.Nodes) == 0 || total == 0 {
		return math.NaN()
	}
	return float64(status.Nodes[0].SlabBytes) * float64(ranks) / float64(total)
}
