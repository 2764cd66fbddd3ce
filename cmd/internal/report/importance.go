package report

import (
	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/svg"
)

// importance shows how the distribution of scores moves over the epochs.
func importance(run *runlog.Run) *Figure {
	all := run.Importance
	f := &Figure{
		ID: "importance", Title: "Importance of samples",
		Caption: "The scores by which an epoch was drawn. A long tail is what makes a small cache " +
			"useful: few samples take many of the draws.",
	}
	if len(all) == 0 {
		return f.Without(noImportance)
	}
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
		ID: f.ID + "-epochs", Title: f.Title, Desc: f.Caption,
		X: svg.IndexAxis("epoch", all[0].Epoch, last),
		Y: svg.ValueAxis("score", svg.Unit{Factor: 1}, top),
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
	f.Legend = []Key{
		{Class: "a", Name: "median", Line: true},
		{Class: "narrow", Name: "half of the samples"},
		{Class: "wide", Name: "nine of ten samples"},
	}
	return f
}
