package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// namedPairs is how many pairs of ranks that do not reach each other are named.
const namedPairs = 5

// A World is what rank 0 knows of all ranks after all have reported.
type World struct {
	Reports []Report // in order of rank
	Lost    []Lost
}

// Findings returns the findings of the check "ranks". It is a pure function.
func (w World) Findings() []Finding {
	found := append(w.checkLost(), w.checkReach()...)
	for i := range found {
		found[i].Check = "ranks"
	}
	return found
}

func (w World) host(rank int) string {
	for _, r := range w.Reports {
		if r.Rank == rank {
			return fmt.Sprintf("rank %d (%s)", rank, r.Host)
		}
	}
	return fmt.Sprintf("rank %d", rank)
}

// checkLost names the ranks that have not reported.
func (w World) checkLost() (found []Finding) {
	for _, l := range w.Lost {
		detail := fmt.Sprintf("rank %d", l.Rank)
		if l.Host != "" {
			detail += " on " + l.Host
		}
		detail += " has not reported, and does not respond"
		found = append(found, bad(detail, "run \"rankpool doctor\" on that node alone")...)
	}
	return found
}

// checkReach names pairs of ranks without a way for messages. Lost ranks are named elsewhere.
func (w World) checkReach() []Finding {
	var cut []string
	for _, r := range w.Reports {
		for _, from := range r.Unheard {
			if !slices.ContainsFunc(w.Lost, func(l Lost) bool { return l.Rank == from }) {
				cut = append(cut, w.host(from)+" to "+w.host(r.Rank))
			}
		}
	}
	switch {
	case len(cut) == 0 && len(w.Lost) > 0:
		return nil
	case len(cut) == 0:
		return good("each rank reaches every other")
	}
	detail := "no message came from " + strings.Join(cut[:min(len(cut), namedPairs)], ", ")
	if more := len(cut) - namedPairs; more > 0 {
		detail += fmt.Sprintf(", and %d more", more)
	}
	return bad(detail, "look whether a firewall lets MPI through between these nodes, and which "+
		"network MPI uses: UCX_NET_DEVICES, UCX_TLS, OMPI_MCA_btl_tcp_if_include")
}
