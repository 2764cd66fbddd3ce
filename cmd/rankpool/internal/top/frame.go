package top

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/charmbracelet/x/ansi"
)

// A view is everything that a picture of top depends on.
type view struct {
	title   string // the job or the session shown
	at      time.Time
	ranks   int
	rows    []nodeRow
	notes   []string
	byStall bool // those that wait most first
	skip    int  // rows scrolled off the top
	width   int  // columns; 0: no limit
	height  int  // lines; 0: no limit
	bars    bool
}

// frame returns the lines of a picture: the title, the nodes, their total, the trainings if ranks
// report them, and notes. It reduces skip if that is too much.
func (v *view) frame() []string {
	total := totalOf(v.rows)
	head := v.head(total)
	foot := v.foot(total)
	shown, skip := v.sorted(), 0
	n := len(shown)
	// 3: titles, total, the line below
	if room := v.height - len(head) - 3 - len(foot); v.height > 0 && room < n {
		room = min(max(1, room), n)
		skip = min(v.skip, n-room)
		shown = shown[skip : skip+room]
		below := faint.Render(fmt.Sprintf("nodes %d to %d of %d", skip+1, skip+room, n))
		foot = append([]string{below}, foot...)
	}
	v.skip = skip
	var figures []figure
	for _, r := range shown {
		figures = append(figures, r.figure())
	}
	nodes := table("rank node", append(figures, total.figure()), v.bars, v.width)
	lines := slices.Concat(head, nodes, foot)
	if v.height > 0 && len(lines) > v.height {
		lines = lines[:v.height]
	}
	if v.width > 0 {
		for i := range lines {
			lines[i] = ansi.Truncate(lines[i], v.width, "")
		}
	}
	return lines
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

// head returns the lines above the table of nodes.
func (v *view) head(t nodeTotal) []string {
	title := fmt.Sprintf("%s  %s  %d of %d ranks", strong.Render("rankpool top"), v.title, t.Nodes,
		v.ranks)
	if t.Epoch >= 0 {
		title += fmt.Sprintf("  %s epoch %d  batch %d of %d", t.Data, t.Epoch, t.Batch, t.Batches)
	} else {
		title += "  no epoch yet"
	}
	lines := []string{title + "  " + faint.Render(v.at.Format(time.TimeOnly))}
	if v.bars {
		legend := ""
		for i, name := range []string{
			"local: the node's memory", "remote: another node's", "storage",
			"fallback: storage, unplanned",
		} {
			legend += sourceStyles[i].Render(sourceGlyphs[i]) + faint.Render(" "+name+"   ")
		}
		lines = append(lines, legend)
	}
	return append(lines, "")
}

// foot returns the lines below the table of nodes.
func (v *view) foot(t nodeTotal) []string {
	lines := v.jobLines()
	if t.GPUIdle != nil {
		text := "GPUs idle " + shareText(t.GPUIdle) + " of the time"
		if t.GPUWaited != nil {
			text += "; in " + shareText(t.GPUWaited) + " of that, training waited for samples"
		}
		lines = append(lines, "", text)
	}
	if t.KeptOf > 0 {
		lines = append(lines, "", fmt.Sprintf("restarted: kept %d of %d samples in memory", t.Kept,
			t.KeptOf))
	}
	if len(v.notes) > 0 {
		lines = append(lines, "")
	}
	for _, note := range v.notes {
		lines = append(lines, yellow.Render(note))
	}
	return lines
}

// jobLines returns an empty line and the table of trainings, nil if there are none. If there are
// many, it shows the first ones.
func (v *view) jobLines() []string {
	var jobs []figure
	for _, j := range jobsOf(v.rows) {
		jobs = append(jobs, j.figure())
	}
	if len(jobs) == 0 {
		return nil
	}
	shown := jobs
	if most := max(1, v.height/3); v.height > 0 && len(jobs) > most {
		shown = jobs[:most]
	}
	lines := append([]string{""}, table("job", shown, false, v.width)...)
	if len(shown) < len(jobs) {
		lines = append(lines, faint.Render(fmt.Sprintf("jobs 1 to %d of %d", len(shown), len(jobs))))
	}
	return lines
}
