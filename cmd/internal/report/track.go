package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/svg"
	"rankpool/mpicache/stats"
)

// A Figure is a plot with its texts. Missing is the reason why a plot is left out.
type Figure struct {
	ID, Title, Caption string
	Missing            string
	Legend             []Key
	Charts             []template.HTML
	Table              *Table // nil: none
}

// Without returns a figure that has a sentence instead of a plot.
func (f *Figure) Without(why string) *Figure {
	f.Missing = why
	return f
}

// A Key explains a class of a plot; Line: it is drawn as a line.
type Key struct {
	Class, Name string
	Line        bool
}

// A Table holds the numbers of a figure.
type Table struct {
	Name string
	Head []string
	Rows [][]string
}

// A track is shared by a row of plots: adjacent bins, and the axis below them.
type track struct {
	x     svg.Axis
	edges []float64 // one more than bins
	bins  []runlog.Bin
	marks []svg.Flag
}

// sums returns the sums over the bins.
func (t *track) sums() (all stats.Sums) {
	for i := range t.bins {
		all.Add(t.bins[i].Sums)
	}
	return all
}

// seen reports whether a level is known in any bin.
func (t *track) seen(l runlog.Level) bool {
	return slices.ContainsFunc(t.bins, func(b runlog.Bin) bool { return b.Levels[l].Seen() })
}

// curve goes through the middles of the bins.
func (t *track) curve(class string, values []float64) svg.Curve {
	l := svg.Curve{Class: class}
	for i, v := range values {
		l.Add((t.edges[i]+t.edges[i+1])/2, v)
	}
	return l
}

// seconds returns the length of a bin.
func (t *track) seconds(i int) float64 { return t.edges[i+1] - t.edges[i] }

// timeTrack returns the track of the run's timeline.
func timeTrack(run *runlog.Run) *track {
	t := &track{
		bins: run.Timeline.Bins, x: svg.TimeAxis("time since the run began", run.Seconds),
		marks: flags(run),
	}
	for i := range t.bins {
		t.edges = append(t.edges, float64(i)*run.Timeline.BinSeconds)
	}
	t.edges = append(t.edges, max(run.Seconds, t.edges[len(t.edges)-1]+1e-3))
	return t
}

// flags returns the run's marks; lines of epochs that would touch each other are left out.
func flags(run *runlog.Run) []svg.Flag {
	var all []svg.Flag
	last := math.Inf(-1)
	for _, m := range run.Marks {
		switch m.Kind {
		case runlog.EpochBegun:
			if m.At-last < run.Seconds/150 {
				continue
			}
			last = m.At
			all = append(all, svg.Flag{
				Class: svg.Epoch, Text: fmt.Sprintf("epoch %d", m.Epoch), At: m.At,
			})
		case runlog.Restarted:
			all = append(all, svg.Flag{
				Class: "restart", Text: restarted(&m, run) + " restarted", At: m.At,
			})
		case runlog.Paused:
			all = append(all, svg.Flag{
				Class: "pause", Text: "stopped for " + Span(m.Seconds), At: m.At,
			})
		}
	}
	return all
}

// groupsOf divides n things into at most most groups [from, to) of neighbours, of nearly equal
// size.
func groupsOf(n, most int) [][2]int {
	groups := min(n, most)
	all := make([][2]int, groups)
	for i := range all {
		all[i] = [2]int{i * n / groups, (i + 1) * n / groups}
	}
	return all
}

// A valueOf returns a value of a bin, in base units, given the bin's length in seconds; NaN: none.
type valueOf func(b *runlog.Bin, seconds float64) float64

// A series is a value of each bin.
type series struct {
	Key
	value valueOf
	high  valueOf // with value as the lower edge it makes a band; nil: a line
}

// line returns a series that is drawn as a line.
func line(class, name string, value valueOf) series {
	return series{Key: Key{class, name, true}, value: value}
}

// values returns a value of each bin.
func (t *track) values(of valueOf) []float64 {
	all := make([]float64, len(t.bins))
	for i := range all {
		all[i] = of(&t.bins[i], t.seconds(i))
	}
	return all
}

// drawLines fills a figure with lines and bands over t.
func (f *Figure) drawLines(t *track, what string, units []svg.Unit, all []series) {
	top := 0.0
	for _, s := range all {
		highest := s.value
		if s.high != nil {
			highest = s.high
		}
		for _, v := range t.values(highest) {
			top = max(top, or0(v))
		}
	}
	u := svg.Fit(units, top)
	if u.Name == "%" && top > 0.5 {
		top = max(top, 1)
	}
	c := f.over(t, svg.ValueAxis(what, u, top/u.Factor))
	for _, s := range all {
		f.Legend = append(f.Legend, s.Key)
		values := scaled(t.values(s.value), u)
		if s.high != nil {
			c.Areas = append(c.Areas, svg.Area{
				Class: s.Class, Edges: t.edges, Low: values, High: scaled(t.values(s.high), u),
			})
		} else {
			c.Lines = append(c.Lines, t.curve(s.Class, values))
		}
	}
	f.Charts = append(f.Charts, c.HTML())
}

// over returns an empty chart over a track.
func (f *Figure) over(t *track, y svg.Axis) *svg.Chart {
	return &svg.Chart{
		ID: f.ID + "-plot", Title: f.Title, Desc: f.Caption, X: t.x, Y: y, Marks: t.marks,
	}
}

// drawStack fills a figure with shares that add up to 1.
func (f *Figure) drawStack(t *track, what string, all []series) {
	c := f.over(t, svg.ValueAxis(what, share[0], 100))
	low := make([]float64, len(t.bins))
	for _, s := range all {
		values := scaled(t.values(s.value), share[0])
		high := make([]float64, len(low))
		for k := range high {
			high[k] = low[k] + values[k]
		}
		c.Areas = append(c.Areas, svg.Area{Class: s.Class, Edges: t.edges, Low: low, High: high})
		f.Legend = append(f.Legend, s.Key)
		low = high
	}
	f.Charts = append(f.Charts, c.HTML())
}

func scaled(values []float64, u svg.Unit) []float64 {
	for i := range values {
		values[i] /= u.Factor
	}
	return values
}

// or0 replaces an unknown value by 0.
func or0(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}
