package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A view is everything that a picture of top depends on.
type view struct {
	title   string // the job or the session shown
	at      time.Time
	ranks   int
	rows    []nodeRow
	notes   []string
	byStall bool // those that wait most first
}

// frame returns the lines of a picture: the title, notes, the trainings if ranks report them, the
// total, and the nodes.
func (v *view) frame() []string {
	total := totalOf(v.rows)
	figures := []figure{total.figure()}
	for _, r := range v.sorted() {
		figures = append(figures, r.figure())
	}
	return slices.Concat(v.head(total), v.jobLines(), table("rank node", figures))
}

func (v *view) sorted() []nodeRow {
	rows := slices.Clone(v.rows)
	if v.byStall {
		stall := func(r nodeRow) float64 {
			if r.Rates == nil || r.Rates.StallShare == nil {
				return -1
			}
			return *r.Rates.StallShare
		}
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return cmp.Compare(stall(b), stall(a)) })
	}
	return rows
}

// head returns the lines above the tables.
func (v *view) head(t nodeTotal) []string {
	title := fmt.Sprintf("%s  %s  %d of %d ranks", strong.Render("rankpool top"), v.title, t.Nodes,
		v.ranks)
	if t.Epoch >= 0 {
		title += fmt.Sprintf("  %s epoch %d  batch %d of %d", t.Data, t.Epoch, t.Batch, t.Batches)
	} else {
		title += "  no epoch yet"
	}
	legend := ""
	for i, name := range []string{
		"local: the node's memory", "remote: another node's", "storage", "fallback: storage, unplanned",
	} {
		legend += sourceStyles[i].Render(sourceGlyphs[i]) + faint.Render(" "+name+"   ")
	}
	lines := []string{title + "  " + faint.Render(v.at.Format(time.TimeOnly)), legend}
	if t.GPUIdle != nil {
		text := "GPUs idle " + shareText(t.GPUIdle) + " of the time"
		if t.GPUWaited != nil {
			text += "; in " + shareText(t.GPUWaited) + " of that, training waited for samples"
		}
		lines = append(lines, text)
	}
	if t.KeptOf > 0 {
		lines = append(lines, fmt.Sprintf("restarted: kept %d of %d samples in memory", t.Kept, t.KeptOf))
	}
	for _, note := range v.notes {
		lines = append(lines, yellow.Render(note))
	}
	return append(lines, "")
}

// jobLines returns the table of trainings and an empty line, nil if there are none.
func (v *view) jobLines() []string {
	var jobs []figure
	for _, j := range jobsOf(v.rows) {
		jobs = append(jobs, j.figure())
	}
	if len(jobs) == 0 {
		return nil
	}
	return append(table("job", jobs), "")
}
