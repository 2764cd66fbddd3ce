package summary

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/dustin/go-humanize"

	"rankpool/mpicache/stats"
)

// unmeasured is below a table in which waiting is "-".
const unmeasured = "waited: not measured, since no DataLoader of PyTorch asked for the batches\n"

// printBrief prints what most people want to know of the epochs, in 80 columns, and their sum.
func printBrief(w io.Writer, rows []epochRow, restarts int) error {
	total := totalOf(rows)
	total.Epoch = totalEpoch
	shown := rows
	if len(rows) > 1 {
		shown = append(rows[:len(rows):len(rows)], total)
	}
	if err := printTable(w, named(briefColumns(), rows), shown); err != nil {
		return err
	}
	text := ""
	if math.IsNaN(total.Sums[stats.StallSeconds]) {
		text += unmeasured
	}
	if restarts > 0 {
		text += fmt.Sprintf("cache restarts %d\n", restarts)
	}
	_, err := io.WriteString(w, text)
	return err
}

const totalEpoch = -1 // of the row of sums

func briefColumns() []column {
	return []column{
		{"epoch", func(r epochRow) string {
			if r.Epoch == totalEpoch {
				return "all"
			}
			return fmt.Sprint(r.Epoch)
		}},
		{"time", func(r epochRow) string { return timeText(r.Sums[stats.TrainSeconds]) }},
		{"waited", func(r epochRow) string {
			return waitedText(r.Sums[stats.StallSeconds], r.Sums[stats.TrainSeconds])
		}},
		{"from memory", func(r epochRow) string {
			return percent(r.Hits()+r.Sums[stats.Substituted], r.Draws())
		}},
		{"from storage", func(r epochRow) string {
			reads := int64(r.Sums[stats.StorageReads] + r.Sums[stats.FallbackReads])
			if reads == 0 {
				return "0"
			}
			return humanize.Comma(reads) + ", " + humanize.IBytes(uint64(r.Sums[stats.StorageBytes]))
		}},
	}
}

// timeText returns a time, such as 8.4 s or 12m5s.
func timeText(seconds float64) string {
	const long = 100
	if seconds < long {
		return fmt.Sprintf("%.1f s", seconds)
	}
	return time.Duration(math.Round(seconds) * float64(time.Second)).String()
}

// waitedText returns how long training waited, and which part of its time that is; "-" if it was
// not measured.
func waitedText(waited, of float64) string {
	if math.IsNaN(waited) {
		return "-"
	}
	share := min(1, waited/cmp.Or(of, math.Inf(1)))
	return fmt.Sprintf("%s (%.0f %%)", timeText(waited), 100*share)
}
