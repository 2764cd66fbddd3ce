package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/dustin/go-humanize"

	"rankpool/mpicache/stats"
)

// Values from which a figure is highlighted: training that waits a tenth of its time loses as much,
// and a job so near its memory limit is about to be killed.
const (
	stallNotable = 0.1
	stallBad     = 0.3
	freeBadBytes = 1 << 30
)

// columns are the titles of both tables; a narrow terminal shows the first ones. The first is the
// name. A column without cells is left out.
var columns = []string{
	"", "data", "samples/s", "stall", "benefit", "local", "remote", "storage", "fallback", "sources",
	"batch", "GPU", "read/s", "memory", "ready", "latency", "of tier", "free", "peers/s",
}

// cells returns the texts from samples/s to fallback, but for benefit; r may be nil.
func (r *servedRates) cells() []string {
	samples := "-"
	if r == nil {
		r = new(servedOf(stats.Sums{}))
	} else {
		samples = humanize.Comma(int64(math.Round(r.SamplesPerSecond)))
	}
	fallback := shareText(r.FallbackShare)
	if r.FallbackShare > 0 {
		fallback = sourceStyles[3].Render(fallback)
	}
	return []string{
		samples, stallText(r.StallShare), sourceStyles[0].Render(shareText(r.LocalShare)),
		sourceStyles[1].Render(shareText(r.RemoteShare)),
		sourceStyles[2].Render(shareText(r.StorageShare)), fallback,
	}
}

// cells returns the text of each column of a training.
func (j jobRow) cells() []string {
	served, benefit := j.Rates.cells(), ""
	if j.BatchSeconds > 0 {
		benefit = fmt.Sprintf("%.2f", j.Ratio())
	}
	return slices.Concat([]string{cmp.Or(j.Name, "-"), j.Data}, served[:2], []string{benefit},
		served[2:], []string{"", batchText(j.Epoch, j.Batch, j.Batches)})
}

// cells returns the text of each column of a node, or of all.
func (t nodeTotal) cells(name string) []string {
	served, bar, tier, read, latency, peers := (*servedRates)(nil), "-", "", "-", "-", "-"
	if r := t.Rates; r != nil {
		served = &r.servedRates
		if r.SamplesPerSecond > 0 {
			bar = stack(20, r.LocalShare, r.RemoteShare, r.StorageShare, r.FallbackShare)
		}
		read, latency = bytesText(r.StorageBytesPerSecond), latencyText(r.StorageLatencySeconds)
		peers = bytesText(r.PeerBytesPerSecond)
		if r.TierShare > 0 {
			tier = shareText(r.TierShare)
		}
	}
	memory := bytesText(float64(t.UsedBytes)) + "/" + bytesText(float64(t.SlabBytes))
	free, gpu := "-", "-"
	if t.MemoryFreeBytes != nil {
		if free = bytesText(float64(*t.MemoryFreeBytes)); *t.MemoryFreeBytes < freeBadBytes {
			free = red.Render(free)
		}
	}
	if t.GPU >= 0 {
		gpu = fmt.Sprintf("%.0f %%", 100*t.GPU)
	}
	cells := served.cells()
	return slices.Concat([]string{name, ""}, cells[:2], []string{""}, cells[2:], []string{
		bar, batchText(t.Epoch, t.Batch, t.Batches), gpu, read, memory, shareText(t.Ready), latency,
		tier, free, peers,
	})
}

func stallText(share stats.Measured) string {
	text := shareText(share)
	switch {
	case share >= stallBad:
		return red.Render(text)
	case share >= stallNotable:
		return yellow.Render(text)
	}
	return text
}

func batchText(epoch, batch, batches int) string {
	if epoch < 0 {
		return "-"
	}
	return fmt.Sprintf("%d: %d/%d", epoch, batch, batches)
}

// table returns a line of titles and one for each row of cells; bold is the number of the total's
// row. The first column is aligned left, the others right.
func table(name string, rows [][]string, bold int) []string {
	var blocks []string
	for i, title := range columns[:len(rows[0])] {
		lines, empty := []string{faint.Render(cmp.Or(title, name))}, true
		for r, cells := range rows {
			cell := cells[i]
			empty = empty && cell == ""
			if r == bold && cell != "" && !strings.Contains(cell, "\x1b") {
				cell = strong.Render(cell)
			}
			lines = append(lines, cell)
		}
		style := lipgloss.NewStyle().Align(lipgloss.Right).PaddingLeft(2)
		if i == 0 {
			style = lipgloss.NewStyle().Align(lipgloss.Left)
		}
		if !empty {
			blocks = append(blocks, style.Render(strings.Join(lines, "\n")))
		}
	}
	return strings.Split(lipgloss.JoinHorizontal(lipgloss.Top, blocks...), "\n")
}
