package doctor

import (
	"slices"
	"strings"

	"rankpool/slurm"
)

// A Report holds the findings of one rank, which it sends to rank 0 as JSON.
type Report struct {
	Rank     int       `json:"-"` // known from the message
	Host     string    `json:"host"`
	Findings []Finding `json:"findings"`
	Unheard  []int     `json:"unheard,omitempty"` // ranks whose greeting has not come
}

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
	out := make([]Finding, 0, len(groups))
	for _, g := range groups {
		f := g.Finding
		f.Detail, f.Amounts, f.Facts = fill(f.Detail, g.amounts), nil, nil
		if at := place(g); len(reports) > 1 && at >= 0 && checks[at].Scope == EachNode {
			slices.Sort(g.hosts)
			f.Node = slurm.FormatHostlist(g.hosts)
		}
		out = append(out, f)
	}
	return out
}

// checkVersions compares what should be the same on all nodes.
func (w World) checkVersions() []Finding {
	hosts := map[string]map[string][]string{} // by fact and value
	var names []string
	for _, r := range w.Reports {
		for _, f := range r.Findings {
			for name, value := range f.Facts {
				if value == "" {
					continue
				}
				if hosts[name] == nil {
					hosts[name] = map[string][]string{}
					names = append(names, name)
				}
				if known := hosts[name][value]; !slices.Contains(known, r.Host) {
					hosts[name][value] = append(known, r.Host)
				}
			}
		}
	}
	slices.Sort(names)
	var found []Finding
	for _, name := range names {
		if len(hosts[name]) < 2 {
			continue
		}
		var parts []string
		for value, on := range hosts[name] {
			slices.Sort(on)
			parts = append(parts, value+" on "+slurm.FormatHostlist(on))
		}
		slices.Sort(parts)
		found = append(found, warning(name+" is not the same everywhere: "+strings.Join(parts, "; "),
			"load the same modules on all nodes; an environment on a shared file system is the "+
				"same for all")...)
	}
	if found == nil && len(names) > 0 {
		found = good("the same on all nodes: " + strings.Join(names, ", "))
	}
	return found
}
