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
	nodeBars = 128 // bars that fit beside each other; with more nodes, those that waited longest
	nodeRows = 24  // rows of the table; likewise
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
		f.Caption += fmt.Sprintf(" The bars are of the %d of %d nodes that waited longest.", nodeBars,
			len(run.Nodes))
	}
	all := run.Totals()
	for _, c := range shownSources(&all) {
		f.Legend = append(f.Legend, SourceKey(c))
	}
	f.Legend = append(f.Legend, Key{Class: "wait", Name: "waiting"})
	var samples []stackPart
	for _, c := range sourcesOf {
		samples = append(samples, stackPart{
			stats.Table[c].Source, stats.Table[c].Place,
			func(s *stats.Sums) float64 { return source(s, c) },
		})
	}
	waits := []stackPart{
		{"wait", "waiting", func(s *stats.Sums) float64 { return or0(waited(s)) }},
	}
	shown := waitedLongest(run, nodeBars)
	f.bars(shown, "samples", "Samples that each node's trainers were given", amounts, samples)
	f.bars(shown, "waiting", "Share of the time that each node's trainers waited", share, waits)
	f.Table = nodeTable(run)
	return f
}

// waitedLongest returns all nodes, or the most that waited longest, by rank.
func waitedLongest(run *runlog.Run, most int) []*runlog.NodeRun {
	all := make([]*runlog.NodeRun, len(run.Nodes))
	for i := range all {
		all[i] = &run.Nodes[i]
	}
	slices.SortStableFunc(all, func(a, b *runlog.NodeRun) int {
		return cmp.Compare(b.Sums[stats.StallSeconds], a.Sums[stats.StallSeconds])
	})
	all = all[:min(most, len(all))]
	slices.SortFunc(all, func(a, b *runlog.NodeRun) int { return cmp.Compare(a.Rank, b.Rank) })
	return all
}

// A stackPart is one part of a node's bar.
type stackPart struct {
	class, name string
	value       func(*stats.Sums) float64
}

// bars adds a chart with a bar for each node.
func (f *Figure) bars(nodes []*runlog.NodeRun, what, title string, units []svg.Unit,
	parts []stackPart,
) {
	top := 0.0
	for _, n := range nodes {
		sum := 0.0
		for _, part := range parts {
			sum += part.value(&n.Sums)
		}
		top = max(top, sum)
	}
	u := svg.Fit(units, top)
	c := svg.Chart{
		ID: f.ID + "-" + what, Title: title, Desc: f.Caption, Height: 150,
		X: svg.IndexAxis("node", 0, len(nodes)), Y: svg.ValueAxis(what, u, top/u.Factor),
	}
	for k, tick := range c.X.Ticks {
		c.X.Ticks[k].Text = fmt.Sprint(nodes[int(tick.At)].Rank)
	}
	for i, n := range nodes {
		low := 0.0
		for _, part := range parts {
			value := part.value(&n.Sums)
			high := low + value/u.Factor
			if value > 0 {
				c.Bars = append(c.Bars, svg.Bar{
					Class: part.class, Text: nodeName(n) + ": " + part.name + " " + In(units, value),
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
	shown := waitedLongest(run, nodeRows)
	if len(shown) < len(run.Nodes) {
		t.Name = fmt.Sprintf("The %d of %d nodes that waited longest", len(shown), len(run.Nodes))
	}
	for _, n := range shown {
		s := &n.Sums
		t.Rows = append(t.Rows, []string{
			fmt.Sprint(n.Rank), n.Host, Count(s.Draws()), Percent(stats.Ratio(s.Hits(), s.Draws())),
			In(DecimalSizes, s[stats.ReadBytes]),
			In(DecimalSizes, s[stats.PeerBytes]), Count(s[stats.FallbackReads]),
			Span(s[stats.StallSeconds]), Percent(s.Share(stats.StallSeconds, stats.TrainSeconds)),
			In(times, s.Share(stats.ReadSeconds, stats.ReadCount)),
			Percent(s.Share(stats.GPUIdle, stats.GPUSampled)), fmt.Sprint(n.Restarts),
		})
	}
	return t
}
