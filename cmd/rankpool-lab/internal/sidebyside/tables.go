// Package sidebyside renders trainings side by side as a page, with the parts of package report.
package sidebyside

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"rankpool/cmd/internal/report"
	"rankpool/cmd/internal/svg"
	"rankpool/mpicache/stats"
)

// A Comparison shows trainings side by side.
type Comparison struct {
	Title   string
	Summary []string // what was compared, in sentences
	Notes   []string // what else limits the comparison, in sentences
	Sides   []Side
	// Target is the accuracy for which the tables show how long it took; 0: the highest that all runs
	// reach.
	Target float64
}

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

var pageTemplate = report.NewTemplate(pageText)

// Write writes the page to w: one HTML file that needs nothing beside it. The same comparison and
// version give the same bytes. The error is w's.
func (c *Comparison) Write(w io.Writer, version string) error {
	p := comparisonPage{
		Title: c.Title, Version: version, Summary: c.Summary,
		Style:   template.CSS(report.Style() + styleText), //nolint:gosec // our own files
		Remarks: c.remarks(), Figures: c.figures(),
		Tables: []*sideTable{c.table(c.learning()), c.table(c.feeding())},
	}
	if err := pageTemplate.Execute(w, &p); err != nil {
		return fmt.Errorf("side by side: %w", err)
	}
	return nil
}

// A comparisonPage is the template's data.
type comparisonPage struct {
	Title, Version string
	Style          template.CSS
	Summary        []string
	Tables         []*sideTable
	Remarks        []report.Remark
	Figures        []*report.Figure
}

// A sideTable has a row for each side.
type sideTable struct {
	Name string
	Head []string
	Rows []sideRow
}

// A sideRow is a side's row of the table.
type sideRow struct {
	Class, Name string
	Cells       []Cell
	Missing     string // instead of the cells
}

// A Cell is a value of the table. Best is set if none in its column is better.
type Cell struct {
	Text string
	Best bool
}

// target returns the accuracy for which times are shown, NaN if no accuracy was reported.
func (c *Comparison) target() float64 {
	if c.Target > 0 {
		return c.Target
	}
	lowest := math.NaN()
	for i := range c.Sides {
		for k := range c.Sides[i].Runs {
			if best := c.Sides[i].Runs[k].best(); !(best >= lowest) {
				lowest = best
			}
		}
	}
	return math.Floor(lowest*1000) / 1000
}

// A column of a table. better is 1 if high values are better, -1 if low ones are, and 0 otherwise.
type column struct {
	name   string
	value  func(*SideRun) float64
	format func(float64) string
	better float64
}

// learning returns the name and the columns of the table of training's results.
func (c *Comparison) learning() (name string, all []column) {
	if target := c.target(); !math.IsNaN(target) {
		goal := " to " + report.Percent(target)
		to := func(of func(point) float64) func(*SideRun) float64 {
			return func(r *SideRun) float64 {
				if p, reached := r.until(target); reached {
					return of(p)
				}
				return math.NaN()
			}
		}
		all = []column{
			{"accuracy", (*SideRun).last, accuracyText, 1},
			{"time" + goal, to(func(p point) float64 { return p.seconds }), secondsText, -1},
			{"epochs" + goal, to(func(p point) float64 { return p.epochs }), svg.Number, -1},
			{"samples" + goal, to(func(p point) float64 { return p.samples }), report.Count, -1},
		}
	}
	return "Learning", append(all, []column{
		{"samples trained", (*SideRun).draws, report.Count, 0},
		{"time", sumOf(stats.TrainSeconds), secondsText, -1},
		{"waited", sumOf(stats.StallSeconds), secondsText, -1},
		{"of its time", (*SideRun).waited, report.Percent, -1},
	}...)
}

// feeding returns the name and the columns of the table of sources of samples.
func (c *Comparison) feeding() (name string, all []column) {
	all = []column{
		{"hits", (*SideRun).hits, report.Percent, 1},
		{"planned hits", shareOf(stats.PlannedHits), report.Percent, 1},
		{"substituted", shareOf(stats.Substituted), report.Percent, 0},
		{"storage reads", func(r *SideRun) float64 {
			return r.sums()[stats.StorageReads] + r.sums()[stats.FallbackReads]
		}, report.Count, -1},
		{"bytes of these", sumOf(stats.StorageBytes), sizeText, -1},
		{"bytes read", (*SideRun).read, sizeText, -1},
	}
	if c.any(stats.Evaluated) { // losses of samples that were not trained on
		all = append(all, column{"evaluated", sumOf(stats.Evaluated), report.Count, 0},
			column{"of evaluated read", sumOf(stats.EvaluatedReads), report.Count, -1})
	}
	if c.any(stats.PackageWrites) {
		all = append(all, column{"packages read", sumOf(stats.PackageReads), report.Count, 0},
			column{"packages written", sumOf(stats.PackageWrites), report.Count, 0},
			column{"package bytes read", sumOf(stats.PackageReadBytes), sizeText, -1},
			column{"package bytes written", sumOf(stats.PackageWriteBytes), sizeText, -1})
	}
	if c.emulated() {
		all = append(all, column{
			"bytes from emulated storage", func(r *SideRun) float64 { return r.StorageBytes }, sizeText, -1,
		})
	}
	return "Memory and storage", all
}

// any reports whether a counter is above 0 in any run.
func (c *Comparison) any(of stats.Counter) bool {
	return slices.ContainsFunc(c.Sides, func(s Side) bool { return s.over(sumOf(of)).mean > 0 })
}

// emulated reports whether emulated storage counted the bytes of any run.
func (c *Comparison) emulated() bool {
	return slices.ContainsFunc(c.Sides, func(s Side) bool {
		return slices.ContainsFunc(s.Runs, func(r SideRun) bool { return !math.IsNaN(r.StorageBytes) })
	})
}

func accuracyText(x float64) string {
	if math.IsNaN(x) {
		return "–"
	}
	return fmt.Sprintf("%.2f %%", 100*x)
}

func secondsText(x float64) string { return report.In([]svg.Unit{second}, x) }
func sizeText(x float64) string    { return report.In(report.DecimalSizes, x) }

// table makes a table of columns.
func (c *Comparison) table(name string, columns []column) *sideTable {
	t := &sideTable{Name: name}
	for _, column := range columns {
		t.Head = append(t.Head, column.name)
	}
	for i := range c.Sides {
		s := &c.Sides[i]
		row := sideRow{Class: sideClass(i), Name: s.Name, Missing: s.Missing}
		for _, column := range columns {
			if len(s.Runs) > 0 {
				row.Cells = append(row.Cells, Cell{Text: s.over(column.value).text(column.format)})
			}
		}
		t.Rows = append(t.Rows, row)
	}
	for k, column := range columns {
		c.markBest(t, k, column)
	}
	return t
}

// markBest marks the best values of a column, unless all are the same.
func (c *Comparison) markBest(t *sideTable, k int, column column) {
	values, best, worst := make([]float64, len(c.Sides)), math.Inf(-1), math.Inf(1)
	for i := range c.Sides {
		values[i] = column.better * c.Sides[i].over(column.value).mean
		if !math.IsNaN(values[i]) {
			best, worst = max(best, values[i]), min(worst, values[i])
		}
	}
	for i := range t.Rows {
		if t.Rows[i].Cells != nil && best > worst && values[i] == best {
			t.Rows[i].Cells[k].Best = true
		}
	}
}

// Tables returns the tables of the page for a terminal. Sides without runs are not in them.
func (c *Comparison) Tables() []*report.Table {
	var all []*report.Table
	for _, t := range []*sideTable{c.table(c.learning()), c.table(c.feeding())} {
		plain := &report.Table{Name: t.Name, Head: append([]string{"system"}, t.Head...)}
		for _, row := range t.Rows {
			if row.Cells == nil {
				continue
			}
			cells := []string{row.Name}
			for _, cell := range row.Cells {
				cells = append(cells, cell.Text)
			}
			plain.Rows = append(plain.Rows, cells)
		}
		all = append(all, plain)
	}
	return all
}

// remarks lists what limits the comparison.
func (c *Comparison) remarks() []report.Remark {
	var all report.Remarks
	most, epochs, alone, silent := 0.0, 0, false, []string{}
	for i := range c.Sides {
		s := &c.Sides[i]
		for k := range s.Runs {
			most, epochs = max(most, s.Runs[k].draws()), max(epochs, len(s.Runs[k].Log.Epochs))
			alone = alone || len(s.Runs) == 1
			if math.IsNaN(s.Runs[k].best()) && !slices.Contains(silent, s.Name) {
				silent = append(silent, s.Name)
			}
		}
	}
	for i := range c.Sides {
		s := &c.Sides[i]
		if len(s.Runs) == 0 {
			all.Bad("%s was not trained: %s", s.Name, s.Missing)
			continue
		}
		if part := s.over((*SideRun).draws).mean / most; part < 0.99 {
			all.Note("%s trained on %s of the samples that others did: see accuracy against "+
				"samples trained.", s.Name, report.Percent(part))
		}
		ofRuns(&all, s, epochs)
	}
	if len(silent) > 0 {
		all.Bad("No accuracy of %s: training must call sampler.metric(\"accuracy\", share) at the "+
			"end of each epoch.", strings.Join(silent, ", "))
	} else if alone {
		all.Note("One run of each system: how much of a difference in accuracy is chance, the " +
			"spread over several seeds would show.")
	}
	for _, note := range c.Notes {
		all.Note("%s", note)
	}
	return all
}

// ofRuns adds remarks about the runs of a side.
func ofRuns(all *report.Remarks, s *Side, epochs int) {
	finished := s.over(func(r *SideRun) float64 { return float64(len(r.Log.Epochs)) }).mean
	if finished < float64(epochs) {
		all.Bad("%s finished %s of %d epochs: its sums are of less training.", s.Name,
			svg.Number(finished), epochs)
	}
	if replaced := s.over(shareOf(stats.Substituted)).mean; replaced > 0 {
		all.Note("%s served another sample than the one drawn in %s of the draws.", s.Name,
			report.Percent(replaced))
	}
	if fell := s.over(sumOf(stats.FallbackReads)).mean; fell > 0 {
		all.Bad("%s: trainers read %s samples from storage themselves, since the cache was late or "+
			"away. Its times are not the system's.", s.Name, report.Count(fell))
	}
	if slices.ContainsFunc(s.Runs, func(r SideRun) bool { return len(r.Log.Restarts()) > 0 }) {
		all.Bad("%s: the cache was restarted while it trained.", s.Name)
	}
}
