package top

import (
	"cmp"
	"fmt"
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

// columns are the titles of both tables, in the order of figure.cells; a narrow terminal shows the
// first ones. The first is the name. A column without cells is left out.
var columns = []string{
	"", "data", "samples/s", "stall", "benefit", "local", "remote", "storage", "fallback", "sources",
	"batch", "GPU", "read/s", "memory", "ready", "latency", "of tier", "free", "peers/s",
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
func (f figure) cells() []string {
	samples, stall, fallback, bar := "-", "-", "-", ""
	var local, remote, storage *float64
	if f.nodes != nil {
		bar = "-"
	}
	if r := f.served; r != nil {
		samples, stall, fallback = countText(r.SamplesPerSecond), stallText(r.StallShare),
			shareText(r.FallbackShare)
		local, remote, storage = r.LocalShare, r.RemoteShare, r.StorageShare
		if f.nodes != nil && local != nil {
			bar = stack([4]float64{*local, *remote, *storage, *r.FallbackShare}, 20)
		}
		if r.FallbackShare != nil && *r.FallbackShare > 0 {
			fallback = sourceStyles[3].Render(fallback)
		}
	}
	benefit := ""
	if f.benefit > 0 {
		benefit = fmt.Sprintf("%.2f", f.benefit)
	}
	cells := []string{
		f.name, f.data, samples, stall, benefit, sourceStyles[0].Render(shareText(local)),
		sourceStyles[1].Render(shareText(remote)), sourceStyles[2].Render(shareText(storage)), fallback,
		bar, f.batch,
	}
	if f.nodes == nil {
		return append(cells, make([]string, len(columns)-len(cells))...)
	}
	return append(cells, f.nodes.cells()...)
}

func stallText(share *float64) string {
	text := shareText(share)
	switch {
	case share == nil || *share < stallNotable:
		return text
	case *share < stallBad:
		return yellow.Render(text)
	}
	return red.Render(text)
}

// cells are those from GPU to peers/s.
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
	return []string{gpu, read, memory, shareText(t.Ready), latency, tier, free, peers}
}

func batchText(epoch, batch, batches int) string {
	if epoch < 0 {
		return "-"
	}
	return fmt.Sprintf("%d: %d/%d", epoch, batch, batches)
}

// table returns a line of titles and one for each row. The first column is aligned left, the others
// right.
func table(name string, rows []figure) []string {
	var cells [][]string // by row
	for _, f := range rows {
		cells = append(cells, f.cells())
	}
	var blocks []string
	for i, title := range columns {
		lines, empty := []string{faint.Render(cmp.Or(title, name))}, true
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
			blocks = append(blocks, style.Render(strings.Join(lines, "\n")))
		}
	}
	return strings.Split(lipgloss.JoinHorizontal(lipgloss.Top, blocks...), "\n")
}
