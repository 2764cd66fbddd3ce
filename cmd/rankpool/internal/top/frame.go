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
	skip    int  // rows scrolled off the top
	width   int  // columns; 0: no limit
	height  int  // lines; 0: no limit
	bars    bool
	glyphs  glyphs
}

// A column is a column of a table with a line for each R.
type column[R any] struct {
	title string
	left  bool
	// order ranks the columns if the table is too wide: the greatest is dropped first.
	order int
	row   func(R) line
}

// A nodeColumn is a column of the table of nodes.
type nodeColumn struct {
	column[nodeRow]
	total func(nodeTotal) line
}

// frame returns the lines of a picture: the title, the nodes, their total, the trainings if ranks
// report them, and notes. It reduces skip if that is too much.
func (v *view) frame() []line {
	rows := v.sorted()
	total := totalOf(rows)
	head := []line{v.head(total)}
	if v.bars {
		head = append(head, v.legend())
	}
	head = append(head, nil)
	foot := v.jobLines()
	if total.GPUIdle != nil {
		foot = append(foot, nil, v.gpuLine(total))
	}
	if total.KeptOf > 0 {
		foot = append(foot, nil, styled(plainText,
			"restarted: kept %d of %d samples in memory", total.Kept, total.KeptOf))
	}
	if len(v.notes) > 0 {
		foot = append(foot, nil)
	}
	for _, note := range v.notes {
		foot = append(foot, styled(yellow, "%s", note))
	}
	shown, skip := rows, 0
	// 3: titles, total, the line below
	if room := v.height - len(head) - 3 - len(foot); v.height > 0 && room < len(rows) {
		room = min(max(1, room), len(rows))
		skip = min(v.skip, len(rows)-room)
		shown = rows[skip : skip+room]
		foot = append([]line{styled(faint, "nodes %d to %d of %d", skip+1, skip+room, len(rows))},
			foot...)
	}
	v.skip = skip
	lines := slices.Concat(head, v.nodeLines(shown, total), foot)
	if v.height > 0 && len(lines) > v.height {
		lines = lines[:v.height]
	}
	if v.width > 0 {
		for i := range lines {
			lines[i] = lines[i].cut(v.width)
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

func (v *view) head(t nodeTotal) line {
	l := line{{"rankpool top", strong}, {"  " + v.title + "  ", plainText}}
	l = append(l, span{fmt.Sprintf("%d of %d ranks", t.Nodes, v.ranks), plainText})
	if t.Epoch >= 0 {
		l = append(l, span{fmt.Sprintf("  %s epoch %d ", t.Data, t.Epoch), plainText})
		if v.bars && (v.width == 0 || v.width >= 100) {
			l = append(l, v.glyphs.bar(float64(t.Batch)/float64(max(1, t.Batches)), 20, blue)...)
		}
		l = append(l, span{fmt.Sprintf(" batch %d of %d", t.Batch, t.Batches), plainText})
	} else {
		l = append(l, span{"  no epoch yet", plainText})
	}
	return append(l, span{"  " + v.at.Format(time.TimeOnly), faint})
}

func (v *view) legend() line {
	var l line
	for i, name := range []string{
		"local: the node's memory", "remote: another node's", "storage", "fallback: storage, unplanned",
	} {
		l = append(l, span{v.glyphs.sources[i], sourceStyles[i]}, span{" " + name + "   ", faint})
	}
	return l
}

func (v *view) gpuLine(t nodeTotal) line {
	text := "GPUs idle " + shareText(t.GPUIdle) + " of the time"
	if t.GPUWaited != nil {
		text += "; in " + shareText(t.GPUWaited) + " of that, training waited for samples"
	}
	return plain(text)
}

// nodeLines returns the nodes and the total, in the columns for which there is room.
func (v *view) nodeLines(rows []nodeRow, total nodeTotal) []line {
	var columns []column[nodeRow]
	var totals []line
	for _, c := range v.columns() {
		columns, totals = append(columns, c.column), append(totals, embolden(c.total(total)))
	}
	return table(columns, rows, totals, v.width)
}

// table returns a line of titles, one for each row, and one of totals unless there are none, in the
// columns for which there is room.
func table[R any](columns []column[R], rows []R, totals []line, width int) []line {
	var orders, widths []int
	var cells [][]line // of a column: its title, the rows', the total's
	for i, c := range columns {
		column := []line{styled(faint, "%s", c.title)}
		for _, r := range rows {
			column = append(column, c.row(r))
		}
		if totals != nil {
			column = append(column, totals[i])
		}
		cells, orders = append(cells, column), append(orders, c.order)
		widest := slices.MaxFunc(column, func(a, b line) int { return a.width() - b.width() })
		widths = append(widths, widest.width())
	}
	lines := make([]line, len(cells[0]))
	for _, at := range fitting(orders, widths, width) {
		for i, cell := range cells[at] {
			if lines[i] != nil {
				lines[i] = append(lines[i], span{"  ", plainText})
			}
			lines[i] = append(lines[i], cell.padded(widths[at], columns[at].left)...)
		}
	}
	return lines
}

func embolden(l line) line {
	out := slices.Clone(l)
	for i := range out {
		if out[i].style == plainText {
			out[i].style = strong
		}
	}
	return out
}

// fitting returns the indexes of the columns that fit, with two spaces between them. It drops
// columns by descending order, but none with order 0.
func fitting(orders, widths []int, width int) []int {
	var places []int
	sum := -2
	for i := range orders {
		places = append(places, i)
		sum += widths[i] + 2
	}
	for width > 0 && sum > width && len(places) > 1 {
		worst := slices.MaxFunc(places, func(a, b int) int { return orders[a] - orders[b] })
		if orders[worst] == 0 {
			break
		}
		sum -= widths[worst] + 2
		places = slices.DeleteFunc(places, func(p int) bool { return p == worst })
	}
	return places
}
