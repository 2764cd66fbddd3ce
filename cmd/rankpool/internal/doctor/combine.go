package doctor

import (
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

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
// sizes filled in. Findings that differ only in sizes become one. With several ranks each
// finding names its nodes, except those of scope Once and Between.
//
// reports are in order of rank. The result is deterministic.
func Combine(reports []Report) []Finding {
	type group struct {
		Finding
		hosts []string
		sizes [][]int64
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
			g.sizes = append(g.sizes, f.Sizes)
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
		f.Detail, f.Sizes = fill(f.Detail, g.sizes), nil
		if at := place(g); len(reports) > 1 && at >= 0 && checks[at].Scope == EachNode {
			slices.Sort(g.hosts)
			f.Node = slurm.FormatHostlist(g.hosts)
		}
		out = append(out, f)
	}
	return out
}

// nothingYet is the place of a size in a Detail.
const nothingYet = "{}"

// fill inserts sizes into detail, each as its range over all nodes. sizes holds a list per node, in
// bytes; lists of another length than the first, of another version of rankpool, are ignored.
func fill(detail string, sizes [][]int64) string {
	for i := range sizes[0] {
		low, high := sizes[0][i], sizes[0][i]
		for _, node := range sizes {
			if len(node) == len(sizes[0]) {
				low, high = min(low, node[i]), max(high, node[i])
			}
		}
		text := humanize.IBytes(uint64(max(0, low)))
		if most := humanize.IBytes(uint64(max(0, high))); most != text {
			text += " to " + most
		}
		detail = strings.Replace(detail, nothingYet, text, 1)
	}
	return detail
}
