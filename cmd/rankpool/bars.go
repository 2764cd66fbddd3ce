package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"golang.org/x/term"

	storage "rankpool/staging/layout"
)

const (
	// plainWidth is the width of a picture that is not shown on a terminal.
	plainWidth = 80
	// maxBars is the most targets that get a bar each, as many as fit on a screen. Of more targets,
	// the fullest and the emptiest are shown.
	maxBars = 40
	minBar  = 10 // columns of the longest bar, also on a narrow terminal
)

// A barStyle is how a picture of bars is drawn.
type barStyle struct {
	width int    // of the terminal, in columns
	full  string // one column of a bar
}

// pictureStyle returns block characters as wide as the terminal to, or plain ASCII if to is not a
// terminal or the user wants no decoration.
//
// Source: no-color.org.
func pictureStyle(to *os.File) barStyle {
	width, _, err := term.GetSize(int(to.Fd()))
	if err != nil || width <= 0 {
		return barStyle{plainWidth, "#"}
	}
	if os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return barStyle{width, "#"}
	}
	return barStyle{width, "█"}
}

// printBars prints a row a target: its name, files, bytes and a bar of its bytes.
func printBars(w io.Writer, s *storage.Survey, style barStyle) error {
	rows, most := barRows(s), int64(1)
	for _, row := range rows {
		most = max(most, row.load.Bytes)
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if row.left > 0 {
			fmt.Fprintf(table, "(%d more)\t\t\t\n", row.left)
			continue
		}
		fmt.Fprintf(table, "%s\t%s files\t%s\t\n",
			storage.TargetName(s.FileSystem, row.load.Target),
			humanize.Comma(row.load.Files), humanize.IBytes(uint64(row.load.Bytes)))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for i, line := range strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n") {
		if i >= len(rows) {
			break
		}
		// Leave one column free: a terminal that is filled to its last column begins a new line.
		bar := max(minBar, style.width-utf8.RuneCountInString(line)-1)
		columns := int(float64(rows[i].load.Bytes) / float64(most) * float64(bar))
		if columns == 0 && rows[i].load.Bytes > 0 {
			columns = 1
		}
		if _, err := fmt.Fprintln(w,
			strings.TrimRight(line+strings.Repeat(style.full, columns), " ")); err != nil {
			return err
		}
	}
	return nil
}

// A barRow is one line of the picture: a target, or how many were left out.
type barRow struct {
	load storage.Load
	left int
}

// barRows returns the lines of the picture, ordered by target; if there are more than maxBars
// targets, the fullest and the emptiest, fullest first.
func barRows(s *storage.Survey) []barRow {
	loads := allLoads(s)
	var rows []barRow
	if len(loads) <= maxBars {
		for _, load := range loads {
			rows = append(rows, barRow{load: load})
		}
		return rows
	}
	slices.SortStableFunc(loads,
		func(a, b storage.Load) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for _, load := range loads[:maxBars/2] {
		rows = append(rows, barRow{load: load})
	}
	rows = append(rows, barRow{left: len(loads) - maxBars})
	for _, load := range loads[len(loads)-maxBars/2:] {
		rows = append(rows, barRow{load: load})
	}
	return rows
}
