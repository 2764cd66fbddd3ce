package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"unicode/utf8"
)

// row is a row of the table. The texts include their units.
type row struct {
	what, ours, other string
	ratio             string // "" if there is nothing to divide by
	value             float64
	bar               bar
}

// bar is the bar of a value; the zero bar is none.
type bar struct {
	is      relation
	limit   float64
	display string // "" for a ratio
}

type relation uint8

const (
	none relation = iota
	atLeast
	atMost
)

// ratioRow compares two measurements of the same kind as ours / other.
func ratioRow(what, ours, other string, ratio float64, is relation, limit float64) row {
	return row{what, ours, other, ratioText(ratio), ratio, bar{is: is, limit: limit}}
}

// plainRow compares a measurement with a fixed bar.
func plainRow(what, ours, other string, value, limit float64, display string) row {
	return row{what: what, ours: ours, other: other, value: value, bar: bar{atMost, limit, display}}
}

// ratioText shows four digits near 1, so that 0.9949 does not look like the 0.995 that it misses.
func ratioText(ratio float64) string {
	switch {
	case ratio < 1.2:
		return fmt.Sprintf("%.4f", ratio)
	case ratio < 10:
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.0f", ratio)
}

func (b bar) String() string {
	text := b.display
	if text == "" {
		text = fmt.Sprint(b.limit)
	}
	switch b.is {
	case atLeast:
		return "≥ " + text
	case atMost:
		return "≤ " + text
	}
	return ""
}

func (r row) verdict() string {
	switch {
	case r.bar.is == none:
		return ""
	case r.bar.is == atLeast && r.value >= r.bar.limit, r.bar.is == atMost && r.value <= r.bar.limit:
		return "yes"
	}
	return "no"
}

// tell prints the row on stderr as soon as it is measured: a section may take minutes.
func (r row) tell() {
	fmt.Fprintf(os.Stderr, "\n  %s: %s / %s  %s %s  %s\n", r.what, r.ours, r.other, r.ratio, r.bar,
		r.verdict())
}

// short returns the ratio and whether it reaches the bar.
func (r row) short() string { return r.ratio + " " + r.verdict() }

// grid is a table of texts: a header, and lines of as many cells.
type grid struct {
	header []string
	lines  [][]string
}

// table returns the grid of rows.
func table(rows []row) grid {
	g := grid{header: []string{"what", "ours", "other", "ratio", "bar", "ok?"}}
	for _, r := range rows {
		line := []string{r.what, r.ours, r.other, r.ratio, r.bar.String(), r.verdict()}
		g.lines = append(g.lines, line)
	}
	return g
}

// joined merges adjacent grids with the same header, and leaves out grids without lines.
func joined(grids []grid) []grid {
	var all []grid
	for _, g := range grids {
		if n := len(all); n > 0 && slices.Equal(all[n-1].header, g.header) {
			all[n-1].lines = append(all[n-1].lines, g.lines...)
		} else if len(g.lines) > 0 {
			all = append(all, grid{g.header, slices.Clone(g.lines)})
		}
	}
	return all
}

// String formats a grid as a Markdown table whose columns are aligned in plain text too.
func (g grid) String() string {
	cells := slices.Insert(slices.Clone(g.lines), 0, g.header)
	widths := make([]int, len(g.header))
	for _, line := range cells {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
	}
	var text strings.Builder
	for _, line := range slices.Insert(cells, 1, rule) {
		for i, cell := range line {
			text.WriteString("| " + cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+1))
		}
		text.WriteString("|\n")
	}
	return text.String()
}

// median returns the median, the upper one of two.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
