package report

import (
	"fmt"
	"math"
	"slices"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/svg"
)

// importance shows the distribution of scores, and how it changes.
func importance(run *runlog.Run) *Figure {
	f := &Figure{
		ID: "importance", Title: "Importance of samples",
		Caption: "The scores by which an epoch was drawn. A long tail is what makes a small cache " +
			"useful: few samples take many of the draws.",
	}
	if len(run.Importance) == 0 {
		return f.without(noImportance)
	}
	f.histogramChart(run)
	if len(run.Importance) == 1 {
		f.Caption += " The log has one epoch's scores, so there is no plot of how they change."
	} else {
		f.bandChart(run)
	}
	t := &Table{Name: f.Title, Head: []string{
		"epoch", "samples", "5 %", "25 %", "median", "75 %", "95 %", "mean",
		"the top tenth's share of the sum",
	}}
	for _, g := range groupsOf(len(run.Importance), tableRows) {
		d := &run.Importance[g[1]-1]
		row := []string{fmt.Sprint(d.Epoch), count(d.Samples)}
		for _, q := range d.Quantiles {
			row = append(row, svg.Number(q))
		}
		t.Rows = append(t.Rows, append(row, svg.Number(d.Mean), percent(d.TopShare)))
	}
	f.Tables = append(f.Tables, t)
	return f
}

// histogramChart draws the first, the middle and the newest distribution.
func (f *Figure) histogramChart(run *runlog.Run) {
	c := svg.Chart{ID: f.ID + "-histogram", Title: "Distribution of the scores", Desc: f.Caption}
	low, high, top := math.Inf(1), math.Inf(-1), 0.0
	n := len(run.Histograms)
	for k, at := range slices.Compact([]int{0, n / 2, n - 1}) {
		h := &run.Histograms[at]
		low, high = min(low, h.Edges[0]), max(high, h.Edges[len(h.Edges)-1])
		values := parts(h)
		for _, v := range values {
			top = max(top, v)
		}
		// Steps as a line: up at the left edge of a class, down at its right edge.
		l := svg.Curve{Class: string("abc"[k])}
		l.Add(h.Edges[0], 0)
		for i, v := range values {
			l.Add(h.Edges[i], v)
			l.Add(h.Edges[i+1], v)
		}
		l.Add(h.Edges[len(values)], 0)
		c.Lines = append(c.Lines, l)
		f.Legend = append(f.Legend, Key{l.Class, fmt.Sprintf("epoch %d", h.Epoch), true})
	}
	c.X, c.Y = svg.RangeAxis("score", low, high), svg.ValueAxis("samples in a class", share[0], top)
	f.Charts = append(f.Charts, c.HTML())
}

// parts returns the classes' shares of the samples, in percent.
func parts(h *runlog.Importance) []float64 {
	sum := 0.0
	for _, n := range h.Counts {
		sum += float64(n)
	}
	values := make([]float64, len(h.Counts))
	for i, n := range h.Counts {
		values[i] = 100 * float64(n) / max(sum, 1)
	}
	return values
}

// bandChart draws how the distribution moves over the epochs.
func (f *Figure) bandChart(run *runlog.Run) {
	all := run.Importance
	groups := groupsOf(len(all), 256)
	q := make([][]float64, len(runlog.Quantiles))
	edges, mid := []float64{}, []float64{}
	low, top := 0.0, 0.0
	for _, g := range groups {
		d := &all[g[1]-1]
		edges, mid = append(edges, float64(all[g[0]].Epoch)),
			append(mid, float64(all[g[0]].Epoch+d.Epoch+1)/2)
		for k, v := range d.Quantiles {
			q[k] = append(q[k], v)
			low, top = min(low, v), max(top, v)
		}
	}
	last := all[len(all)-1].Epoch + 1
	edges = append(edges, float64(last))
	c := svg.Chart{
		ID: f.ID + "-epochs", Title: "The scores over the epochs",
		Desc: "Half of the samples are in the dark band, nine of ten in the light one.",
		X:    svg.IndexAxis("epoch", all[0].Epoch, last),
		Y:    svg.ValueAxis("score", svg.Unit{Factor: 1}, top),
		Areas: []svg.Area{
			{Class: "wide", Edges: edges, Low: q[0], High: q[4]},
			{Class: "narrow", Edges: edges, Low: q[1], High: q[3]},
		},
		Lines: []svg.Curve{{Class: "a", X: mid, Y: q[2]}},
	}
	if low < 0 {
		c.Y = svg.RangeAxis("score", low, top)
	}
	f.Charts = append(f.Charts, c.HTML())
	f.Legend = append(f.Legend, Key{Class: "wide", Name: "below: nine of ten samples"},
		Key{Class: "narrow", Name: "half of the samples"})
}
