package sidebyside

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"rankpool/cmd/internal/report"
	"rankpool/cmd/internal/svg"
	"rankpool/mpicache/stats"
)

// The units of axes.
var (
	second     = svg.Unit{Name: "s", Factor: 1}
	percentage = svg.Unit{Name: "%", Factor: 0.01}
)

// sideColours is the number of colours; further sides reuse them from the first.
const sideColours = 12

// sideClass returns the class of everything that is drawn for the i-th side.
func sideClass(i int) string { return fmt.Sprintf("side s%d", i%sideColours) }

// figures makes the plots of a comparison.
func (c *Comparison) figures() []*report.Figure {
	return []*report.Figure{
		c.accuracy("time", "Accuracy against time",
			"Seconds in training epochs; tests are left out. Up and left is better.",
			func(p point) float64 { return p.seconds },
			func(high float64) svg.Axis { return svg.TimeAxis("time in training", high) }),
		c.accuracy("epochs", "Accuracy against epochs",
			"What the choice of samples does to learning, whatever the time.",
			func(p point) float64 { return p.epochs }, func(high float64) svg.Axis {
				a := svg.ValueAxis("epochs", svg.Unit{Factor: 1}, high)
				a.Ticks = slices.DeleteFunc(a.Ticks, func(t svg.Tick) bool { return t.At != math.Trunc(t.At) })
				return a
			}),
		c.sources(), c.times(), c.storage(),
	}
}

// trained yields the sides that have runs, and their numbers.
func (c *Comparison) trained(yield func(int, *Side) bool) {
	for i := range c.Sides {
		if s := &c.Sides[i]; len(s.Runs) > 0 && !yield(i, s) {
			return
		}
	}
}

// accuracy draws each side's accuracy against a growing quantity. toAxis makes its axis, up to the
// highest value.
func (c *Comparison) accuracy(id, title, caption string, of func(point) float64,
	toAxis func(high float64) svg.Axis,
) *report.Figure {
	f := &report.Figure{ID: id, Title: title, Caption: caption}
	right, low, high := 0.0, math.Inf(1), math.Inf(-1)
	plot := svg.Chart{ID: id + "-plot", Title: title, Desc: caption, Height: 300}
	for i := range c.Sides {
		s := &c.Sides[i]
		mean, bottom, top := s.curve()
		line := svg.Curve{Class: sideClass(i), Points: true, Name: s.Name}
		band := svg.Area{Class: sideClass(i)}
		for k, p := range mean {
			if math.IsNaN(p.accuracy) {
				continue
			}
			line.Add(of(p), 100*p.accuracy)
			band.Edges = append(band.Edges, of(p))
			band.Low, band.High = append(band.Low, 100*bottom[k]), append(band.High, 100*top[k])
			right, low, high = max(right, of(p)), min(low, 100*bottom[k]), max(high, 100*top[k])
		}
		if len(line.X) == 0 {
			continue
		}
		plot.Lines = append(plot.Lines, line)
		if len(s.Runs) > 1 {
			plot.Ranges = append(plot.Ranges, band)
		}
		f.Legend = append(f.Legend, report.Key{Class: line.Class, Name: s.Name, Line: true})
	}
	if len(plot.Lines) == 0 {
		return f.Without("No training reported its accuracy.")
	}
	if len(plot.Ranges) > 0 {
		f.Caption += " Lines are means over the seeds, bands reach from the lowest to the highest."
	}
	room := max(1, high-low) / 20
	plot.X, plot.Y = toAxis(right), svg.RangeAxis("accuracy (%)", low-room, high+room)
	f.Charts = []template.HTML{plot.HTML()}
	return f
}

// sources shows where each side's samples came from.
func (c *Comparison) sources() *report.Figure {
	f := &report.Figure{
		ID: "sources", Title: "Where samples came from",
		Caption: "Of the samples that trainers were given, the part from each source. Systems that " +
			"draw the same sample several times an epoch find it in memory more often; that alone " +
			"makes no training faster per new sample.",
	}
	parts := []stats.Counter{
		stats.HitsLocal, stats.HitsRemote, stats.Substituted, stats.StorageReads, stats.FallbackReads,
	}
	var rows []svg.Row
	seen := make([]bool, len(parts))
	for _, s := range c.trained {
		row := svg.Row{Name: s.Name}
		for k, part := range parts {
			v, key := s.over(shareOf(part)).mean, report.SourceKey(part)
			seen[k] = seen[k] || v > 0
			row.Add(key.Class, 100*or0(v), s.Name+": "+key.Name+" "+report.Percent(v))
		}
		row.Text = report.Percent(s.over((*SideRun).hits).mean) + " hits"
		rows = append(rows, row)
	}
	for k, part := range parts {
		if seen[k] {
			f.Legend = append(f.Legend, report.SourceKey(part))
		}
	}
	return withLedger(f, svg.ValueAxis("samples", percentage, 100), rows)
}

// times shows how long each side trained, and how much of that it waited.
func (c *Comparison) times() *report.Figure {
	f := &report.Figure{
		ID: "times", Title: "Time in training, and waiting for samples",
		Caption: "Seconds in training epochs. What was waited for samples is the part that a faster " +
			"cache could save.",
		Legend: []report.Key{
			{Class: "trained", Name: "training"},
			{Class: "wait", Name: "waiting for samples"},
		},
	}
	var rows []svg.Row
	most := 0.0
	for _, s := range c.trained {
		all := s.over(sumOf(stats.TrainSeconds))
		waited := s.over(func(r *SideRun) float64 {
			return min(r.sums()[stats.StallSeconds], r.sums()[stats.TrainSeconds])
		})
		row := svg.Row{Name: s.Name, Text: all.text(secondsText)}
		training := all.mean - or0(waited.mean)
		row.Add("trained", training, s.Name+": training "+secondsText(training))
		row.Add("wait", or0(waited.mean), s.Name+": waiting "+secondsText(waited.mean))
		most = max(most, all.mean)
		rows = append(rows, row)
	}
	return withLedger(f, svg.ValueAxis("time in training", second, most), rows)
}

// storage shows what each side read from storage.
func (c *Comparison) storage() *report.Figure {
	f := &report.Figure{
		ID: "storage", Title: "Bytes read from storage",
		Caption: "Of the samples that trainers were given.",
	}
	value := sumOf(stats.StorageBytes)
	if c.emulated() {
		f.Caption = "As the emulated storage counted them: of training and of its tests, and what was " +
			"read ahead and not used."
		value = func(r *SideRun) float64 { return r.StorageBytes }
	}
	most := 0.0
	for _, s := range c.trained {
		most = max(most, or0(s.over(value).mean))
	}
	u := svg.Fit(report.DecimalSizes, most)
	var rows []svg.Row
	for i, s := range c.trained {
		read := s.over(value)
		row := svg.Row{Name: s.Name, Text: read.text(sizeText)}
		row.Add(sideClass(i), or0(read.mean)/u.Factor, s.Name+": "+sizeText(read.mean))
		rows = append(rows, row)
	}
	return withLedger(f, svg.ValueAxis("read from storage", u, most/u.Factor), rows)
}

// withLedger adds horizontal bars to a figure; without rows it has a sentence instead.
func withLedger(f *report.Figure, x svg.Axis, rows []svg.Row) *report.Figure {
	if len(rows) == 0 {
		return f.Without("No system was trained.")
	}
	b := svg.Ledger{ID: f.ID + "-plot", Title: f.Title, Desc: f.Caption, X: x, Rows: rows}
	f.Charts = []template.HTML{b.HTML()}
	return f
}
