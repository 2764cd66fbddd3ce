package report

import (
	"cmp"
	"fmt"
	"slices"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/svg"
	"rankpool/mpicache/stats"
)

const (
	nodeBars = 128 // bars that fit beside each other; more nodes are drawn in groups of neighbours
	nodeRows = 24  // rows of the table; with more nodes, those that waited longest
)

// balance shows what each node did.
func balance(run *runlog.Run) *Figure {
	f := &Figure{
		ID: "balance", Title: "Nodes side by side",
		Caption: "Bars of equal height are a balanced run. A node that waits longer than the others " +
			"holds them all up in each step.",
	}
	switch {
	case len(run.Nodes) == 0:
		return f.Without(noNodeLines)
	case len(run.Nodes) == 1:
		f.Caption = "One node: there is nothing to compare."
	case len(run.Nodes) > nodeBars:
		f.Caption += fmt.Sprintf(" Each bar is of %d nodes or one more: their mean, of waiting the "+
			"worst of them.", len(run.Nodes)/nodeBars)
	}
	all := run.Totals()
	for _, c := range shownSources(&all) {
		f.Legend = append(f.Legend, SourceKey(c))
	}
	f.Legend = append(f.Legend, Key{Class: "wait", Name: "waiting"})
	groups := groupsOf(len(run.Nodes), nodeBars)
	names := make([]string, len(groups))
	for i, g := range groups {
		names[i] = nodeName(&run.Nodes[g[0]])
		if g[1]-g[0] > 1 {
			names[i] += fmt.Sprintf(" to %d", run.Nodes[g[1]-1].Rank)
		}
	}
	var samples []stackPart
	for _, c := range sourcesOf {
		samples = append(samples, stackPart{
			stats.Table[c].Source, stats.Table[c].Place,
			func(s *stats.Sums) float64 { return source(s, c) }, false,
		})
	}
	waits := []stackPart{
		{"wait", "waiting", func(s *stats.Sums) float64 { return or0(waited(s)) }, true},
	}
	f.bars(run, groups, names, "samples", "Samples that each node's trainers were given", amounts,
		samples)
	f.bars(run, groups, names, "waiting", "Share of the time that each node's trainers waited", share,
		waits)
	f.Table = nodeTable(run)
	return f
}

// A stackPart is one part of a node's bar.
type stackPart struct {
	class, name string
	value       func(*stats.Sums) float64
	worst       bool // a group's maximum is drawn, not its mean
}

// ofGroup returns the value of a group of nodes.
func (p *stackPart) ofGroup(nodes []runlog.NodeRun) float64 {
	sum, highest := 0.0, 0.0
	for i := range nodes {
		v := p.value(&nodes[i].Sums)
		sum, highest = sum+v, max(highest, v)
	}
	if p.worst {
		return highest
	}
	return sum / float64(len(nodes))
}

// bars adds a chart with a bar for each group of nodes.
func (f *Figure) bars(run *runlog.Run, groups [][2]int, names []string, what, title string,
	units []svg.Unit, parts []stackPart,
) {
	values, top := make([][]float64, len(groups)), 0.0
	for i, g := range groups {
		sum := 0.0
		for k := range parts {
			v := parts[k].ofGroup(run.Nodes[g[0]:g[1]])
			values[i] = append(values[i], v)
			sum += v
		}
		top = max(top, sum)
	}
	u := svg.Fit(units, top)
	c := svg.Chart{
		ID: f.ID + "-" + what, Title: title, Desc: f.Caption, Height: 150,
		X: svg.IndexAxis("node", 0, len(groups)), Y: svg.ValueAxis(what, u, top/u.Factor),
	}
	if len(groups) < len(run.Nodes) || run.Nodes[len(run.Nodes)-1].Rank != len(run.Nodes)-1 {
		for k := range c.X.Ticks { // a bar's number is not its node's
			c.X.Ticks[k].Text = fmt.Sprint(run.Nodes[groups[int(c.X.Ticks[k].At)][0]].Rank)
		}
	}
	for i := range groups {
		low := 0.0
		for k, part := range parts {
			high := low + values[i][k]/u.Factor
			if values[i][k] > 0 {
				c.Bars = append(c.Bars, svg.Bar{
					Class: part.class, Text: names[i] + ": " + part.name + " " + In(units, values[i][k]),
					Left: float64(i) + 0.12, Right: float64(i) + 0.88, Low: low, High: high,
				})
			}
			low = high
		}
	}
	f.Charts = append(f.Charts, c.HTML())
}

func nodeName(n *runlog.NodeRun) string {
	if n.Host == "" {
		return fmt.Sprintf("node %d", n.Rank)
	}
	return fmt.Sprintf("node %d (%s)", n.Rank, n.Host)
}

func nodeTable(run *runlog.Run) *Table {
	t := &Table{
		Name: "Over the run",
		Head: []string{
			"node", "host", "samples", "hits", "from storage", "from peers", "fallback reads",
			"waited", "of its time", "mean read", "GPUs idle", "restarts",
		},
	}
	shown := make([]*runlog.NodeRun, len(run.Nodes))
	for i := range shown {
		shown[i] = &run.Nodes[i]
	}
	if len(shown) > nodeRows {
		t.Name = fmt.Sprintf("The %d of %d nodes that waited longest", nodeRows, len(shown))
		slices.SortStableFunc(shown, func(a, b *runlog.NodeRun) int {
			return cmp.Compare(b.Sums[stats.StallSeconds], a.Sums[stats.StallSeconds])
		})
		shown = shown[:nodeRows]
	}
	for _, n := range shown {
		s := &n.Sums
		t.Rows = append(t.Rows, []string{
			fmt.Sprint(n.Rank), n.Host, Count(s.Draws()), Percent(stats.Ratio(s.Hits(), s.Draws())),
			In(DecimalSizes, cmp.Or(s[stats.ReadBytes], s[stats.StorageBytes])),
			In(DecimalSizes, s[stats.PeerBytes]), Count(s[stats.FallbackReads]),
			Span(s[stats.StallSeconds]), Percent(s.Share(stats.StallSeconds, stats.TrainSeconds)),
			In(times, s.Share(stats.ReadSeconds, stats.ReadCount)),
			Percent(s.Share(stats.GPUIdle, stats.GPUSampled)), fmt.Sprint(n.Restarts),
		})
	}
	return t
}
