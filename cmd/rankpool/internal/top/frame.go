package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"rankpool/mpicache/stats"
)

// frame returns the lines of a picture: the title, notes, the trainings if ranks report them, the
// total, and the nodes.
func (t *run) frame() []string {
	total := totalOf(t.rows)
	lines, jobs := t.head(total), [][]string(nil)
	for _, j := range jobsOf(t.rows) {
		jobs = append(jobs, j.cells())
	}
	if len(jobs) > 0 {
		lines = append(append(lines, table("job", jobs, -1)...), "")
	}
	nodes := [][]string{total.cells("all")}
	for _, r := range t.sorted() {
		nodes = append(nodes, totalOf([]nodeRow{r}).cells(fmt.Sprintf("%4d %s", r.Rank, r.Host)))
	}
	return append(lines, table("rank node", nodes, 0)...)
}

func (t *run) sorted() []nodeRow {
	rows := slices.Clone(t.rows)
	stall := func(r nodeRow) stats.Measured {
		if r.Rates == nil {
			return ratio(0, 0)
		}
		return r.Rates.StallShare
	}
	if t.byStall {
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return cmp.Compare(stall(b), stall(a)) })
	}
	return rows
}

// head returns the lines above the tables.
func (t *run) head(all nodeTotal) []string {
	title := fmt.Sprintf("%s  %s  %d of %d ranks", strong.Render("rankpool top"), t.title(), all.Nodes,
		t.status.Ranks)
	if all.Epoch >= 0 {
		title += fmt.Sprintf("  %s epoch %d  batch %d of %d", all.Data, all.Epoch, all.Batch, all.Batches)
	} else {
		title += "  no epoch yet"
	}
	legend := ""
	for i, name := range []string{
		"local: the node's memory", "remote: another node's", "storage", "fallback: storage, unplanned",
	} {
		legend += sourceStyles[i].Render(sourceGlyphs[i]) + faint.Render(" "+name+"   ")
	}
	lines := []string{title + "  " + faint.Render(t.at.Format(time.TimeOnly)), legend}
	if all.GPUIdle >= 0 {
		text := "GPUs idle " + shareText(all.GPUIdle) + " of the time"
		if all.GPUWaited >= 0 {
			text += "; in " + shareText(all.GPUWaited) + " of that, training waited for samples"
		}
		lines = append(lines, text)
	}
	if all.KeptOf > 0 {
		lines = append(lines,
			fmt.Sprintf("restarted: kept %d of %d samples in memory", all.Kept, all.KeptOf))
	}
	for _, note := range t.notes {
		lines = append(lines, yellow.Render(note))
	}
	return append(lines, "")
}
