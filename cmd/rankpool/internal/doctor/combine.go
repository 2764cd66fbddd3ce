package doctor

import (
	"slices"

	"rankpool/slurm"
)

// A Report holds the findings of one rank, which it sends to rank 0 as JSON.
type Report struct {
	Rank     int       `json:"-"` // known from the message
	Host     string    `json:"host"`
	Findings []Finding `json:"findings"`
	Unheard  []int     `json:"unheard,omitempty"` // ranks whose greeting has not come
}

// sameEverywhere are the checks whose good findings name versions, which must not differ.
var sameEverywhere = []string{"mpi", "python"}

// Combine merges the findings of all ranks into one list, in the order of Checks, with their
// amounts filled in. Findings that differ only in amounts become one. With several ranks each
// finding names its nodes, except those of scope Once and Between.
//
// reports are in order of rank. The result is deterministic.
func Combine(reports []Report) []Finding {
	type group struct {
		Finding
		hosts   []string
		amounts [][]Amount
	}
	var groups []*group
	same := map[[4]string]*group{}
	for _, r := range reports {
		for _, f := range r.Findings {
			key := [4]string{f.Check, string(f.Status), f.Detail, f.Advice}
			g := same[key]
			if g == nil {
				g = &group{Finding: f}
				same[key] = g
				groups = append(groups, g)
			}
			g.amounts = append(g.amounts, f.Amounts)
			if !slices.Contains(g.hosts, r.Host) {
				g.hosts = append(g.hosts, r.Host)
			}
		}
	}
	checks := Checks()
	place := func(g *group) int {
		return slices.IndexFunc(checks, func(c Check) bool { return c.Name == g.Check })
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return place(a) - place(b) })
	kinds := map[string]int{} // of good findings, by check
	for _, g := range groups {
		if g.Status == Good {
			kinds[g.Check]++
		}
	}
	out := make([]Finding, 0, len(groups))
	for _, g := range groups {
		f := g.Finding
		if g.Status == Good && kinds[g.Check] > 1 && slices.Contains(sameEverywhere, g.Check) {
			f.Status, f.Advice = Warning, "this is not the same on all nodes: load the same modules; an "+
				"environment on a shared file system is the same for all"
		}
		f.Detail, f.Amounts = fill(f.Detail, g.amounts), nil
		if at := place(g); len(reports) > 1 && at >= 0 && checks[at].Scope == EachNode {
			slices.Sort(g.hosts)
			f.Node = slurm.FormatHostlist(g.hosts)
		}
		out = append(out, f)
	}
	return out
}
