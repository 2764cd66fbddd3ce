package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"charm.land/lipgloss/v2"
)

// Values from which a figure is highlighted: training that waits a tenth of its time loses as much,
// and a job so near its memory limit is about to be killed.
const (
	stallNotable = 0.1
	stallBad     = 0.3
	freeBadBytes = 1 << 30
)

// A column is a column of the tables. If a table is too wide, the column with the greatest order is
// dropped first, and that with order 0 never; one without cells is left out.
type column struct {
	title string
	order int
}

// columns are those of both tables, in the order of figure.cells. The first is the name.
var columns = []column{
	{"", 0},
	{"data", 6},
	{"batch", 13},
	{"samples/s", 1},
	{"sources", 14},
	{"local", 3},
	{"remote", 4},
	{"storage", 4},
	{"fallback", 6},
	{"stall", 2},
	{"benefit", 3},
	{"of tier", 10},
	{"read/s", 5},
	{"latency", 9},
	{"peers/s", 12},
	{"ready", 8},
	{"memory", 7},
	{"free", 11},
	{"GPU", 3},
}

// A figure is a line of a table: a node, all nodes, or a training.
type figure struct {
	name, data, batch string
	served            *servedRates // nil: not known
	benefit           float64      // how many times as long a batch takes without the cache, if > 0
	nodes             *nodeTotal   // nil: a training
	total             bool
}

func (r nodeRow) figure() figure {
	f := totalOf([]nodeRow{r}).figure()
	f.name, f.total = fmt.Sprintf("%4d %s", r.Rank, r.Host), false
	return f
}

func (t nodeTotal) figure() figure {
	return figure{
		name: "all", batch: batchText(t.Epoch, t.Batch, t.Batches), served: t.Rates.served(),
		nodes: &t, total: true,
	}
}

func (j jobRow) figure() figure {
	f := figure{
		name: cmp.Or(j.Name, "-"), data: j.Data, batch: batchText(j.Epoch, j.Batch, j.Batches),
		served: j.Rates,
	}
	if j.BatchSeconds > 0 {
		f.benefit = j.Ratio()
	}
	return f
}

// cells returns the text of each column; a column that does not apply is "".
func (f figure) cells(bars bool) []string {
	cells := make([]string, 0, len(columns))
	cells = append(append(cells, f.name, f.data, f.batch), f.servedCells(bars)...)
	if f.benefit > 0 {
		cells = append(cells, fmt.Sprintf("%.2f", f.benefit))
	} else {
		cells = append(cells, "")
	}
	if f.nodes == nil {
		return append(cells, make([]string, len(columns)-len(cells))...)
	}
	return append(cells, f.nodes.cells()...)
}

// servedCells are those from samples/s to stall.
func (f figure) servedCells(bars bool) []string {
	r, bar := f.served, ""
	if bars && f.nodes != nil {
		bar = "-"
	}
	if r == nil {
		return []string{"-", bar, "-", "-", "-", "-", "-"}
	}
	if bar != "" && r.LocalShare != nil {
		bar = stack([4]float64{*r.LocalShare, *r.RemoteShare, *r.StorageShare, *r.FallbackShare}, 20)
	}
	fallback, stall := shareText(r.FallbackShare), shareText(r.StallShare)
	if r.FallbackShare != nil && *r.FallbackShare > 0 {
		fallback = sourceStyles[3].Render(fallback)
	}
	switch {
	case r.StallShare == nil || *r.StallShare < stallNotable:
	case *r.StallShare < stallBad:
		stall = yellow.Render(stall)
	default:
		stall = red.Render(stall)
	}
	return []string{
		countText(r.SamplesPerSecond), bar, sourceStyles[0].Render(shareText(r.LocalShare)),
		sourceStyles[1].Render(shareText(r.RemoteShare)),
		sourceStyles[2].Render(shareText(r.StorageShare)), fallback, stall,
	}
}

// cells are those from "of tier" to GPU.
func (t *nodeTotal) cells() []string {
	tier, read, latency, peers := "", "-", "-", "-"
	if r := t.Rates; r != nil {
		read, latency = bytesText(r.StorageBytesPerSecond), latencyText(r.StorageLatencySeconds)
		peers = bytesText(r.PeerBytesPerSecond)
		if r.TierShare != nil && *r.TierShare > 0 {
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
	if t.GPU != nil {
		gpu = fmt.Sprintf("%.0f %%", 100**t.GPU)
	}
	return []string{tier, read, latency, peers, shareText(t.Ready), memory, free, gpu}
}

func batchText(epoch, batch, batches int) string {
	if epoch < 0 {
		return "-"
	}
	return fmt.Sprintf("%d: %d/%d", epoch, batch, batches)
}

// table returns a line of titles and one for each row, in the columns for which there is room. The
// first column is aligned left, the others right.
func table(name string, rows []figure, bars bool, width int) []string {
	var cells [][]string // by row
	for _, f := range rows {
		cells = append(cells, f.cells(bars))
	}
	var shown []column
	var blocks []string
	for i, c := range columns {
		lines, empty := []string{faint.Render(cmp.Or(c.title, name))}, true
		for r, f := range rows {
			cell := cells[r][i]
			empty = empty && cell == ""
			if f.total && cell != "" && !strings.Contains(cell, "\x1b") {
				cell = strong.Render(cell)
			}
			lines = append(lines, cell)
		}
		style := lipgloss.NewStyle().Align(lipgloss.Right).PaddingLeft(2)
		if i == 0 {
			style = lipgloss.NewStyle().Align(lipgloss.Left)
		}
		if !empty {
			shown, blocks = append(shown, c), append(blocks, style.Render(strings.Join(lines, "\n")))
		}
	}
	for width > 0 && lipgloss.Width(lipgloss.JoinHorizontal(lipgloss.Top, blocks...)) > width {
		worst := slices.Index(shown,
			slices.MaxFunc(shown, func(a, b column) int { return a.order - b.order }))
		if shown[worst].order == 0 {
			break
		}
		shown, blocks = slices.Delete(shown, worst, worst+1), slices.Delete(blocks, worst, worst+1)
	}
	return strings.Split(lipgloss.JoinHorizontal(lipgloss.Top, blocks...), "\n")
}
