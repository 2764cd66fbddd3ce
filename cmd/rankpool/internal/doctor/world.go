package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rankpool/slurm"
)

const (
	// Between nodes. A message takes 1 to 3 µs over a fabric and 10 to 50 µs over Ethernet; rankpool's
	// own loop, which sleeps a little when idle, adds some tens. 10 Gb/s are 1.25 GB/s.
	slowPing      = time.Millisecond
	slowBandwidth = 1e9
	// A way is slow when it is this many times worse than the median of its kind.
	slowerPing      = 4
	slowerBandwidth = 3
	// below this above the median no ping is slow: a rank that shares its core is late.
	pingNoise = 200 * time.Microsecond
	namedWays = 5

	clockWarning = 50 * time.Millisecond
	clockBad     = time.Second
)

// A World is what rank 0 knows of all ranks after all have reported and all ways are measured.
type World struct {
	Job     slurm.Job
	Reports []Report // in order of rank
	Lost    []Lost
	Ways    []Way
	Offsets []Offset
}

// between are the checks of scope Between, by name.
var between = map[string]func(World) []Finding{
	"ranks": checkRanks, "ping": checkPing, "bandwidth": checkBandwidth, "clock": checkClock,
	"versions": checkVersions,
}

// Findings returns the findings of the checks that have scope Between. It is a pure function.
func (w World) Findings(checks []Check) []Finding {
	var all []Finding
	for _, check := range checks {
		if check.Scope != Between {
			continue
		}
		for _, f := range between[check.Name](w) {
			f.Check = check.Name
			all = append(all, f)
		}
	}
	return all
}

func (w World) host(rank int) string {
	for _, r := range w.Reports {
		if r.Rank == rank {
			return r.Host
		}
	}
	return fmt.Sprintf("rank %d", rank)
}

// checkRanks compares ranks, nodes and the job.
func checkRanks(w World) []Finding {
	var found []Finding
	for _, l := range w.Lost {
		detail := fmt.Sprintf("rank %d", l.Rank)
		if l.Host != "" {
			detail += " on " + l.Host
		}
		detail += " has not reported, and does not respond"
		if l.Check != "" {
			detail += "; its last check was \"" + l.Check + "\""
		}
		found = append(found, bad(detail, "run \"rankpool doctor\" on that node alone")...)
	}
	on := map[string]int{}
	var hosts, crowded []string
	for _, r := range w.Reports {
		if on[r.Host]++; on[r.Host] == 1 {
			hosts = append(hosts, r.Host)
		} else if on[r.Host] == 2 {
			crowded = append(crowded, r.Host)
		}
	}
	switch {
	case len(crowded) > 0:
		slices.Sort(crowded)
		found = append(found, warning("several ranks share a node: "+slurm.FormatHostlist(crowded),
			"start one a node: srun --ntasks-per-node=1, or mpirun --map-by ppr:1:node (Open MPI), "+
				"-ppn 1 (MPICH)")...)
	case placed(w.Job.Nodes) && len(hosts)+len(w.Lost) < w.Job.Nodes:
		found = append(found, warning(fmt.Sprintf("there are ranks on %d of %d nodes", len(hosts),
			w.Job.Nodes), "start one on each: srun --ntasks-per-node=1")...)
	case len(found) == 0:
		found = append(found, good("one rank on each of {} nodes", count(len(hosts)))...)
	}
	return found
}

// kinds divides the ways into those inside a node, which are faster, and those between nodes, and
// returns findings for those that have failed.
func (w World) kinds() (inside, across []Way, failed []Finding) {
	for _, way := range w.Ways {
		switch {
		case way.Failure != "":
			between := fmt.Sprintf("rank %d (%s) to rank %d (%s)", way.From, w.host(way.From), way.To,
				w.host(way.To))
			failed = append(failed, bad(between+": "+way.Failure,
				"look whether a firewall lets MPI through between these nodes, and which network MPI uses")...)
		case w.host(way.From) == w.host(way.To):
			inside = append(inside, way)
		default:
			across = append(across, way)
		}
	}
	return inside, across, failed
}

func checkPing(w World) []Finding {
	_, _, failed := w.kinds()
	return append(failed, w.checkLinks(linkCheck{
		value: func(way Way) float64 { return way.Ping.Seconds() }, unit: Seconds,
		detail: "round trips %s take {}",
		slower: func(v, median float64) float64 {
			return v / max(slowerPing*median, median+pingNoise.Seconds())
		},
		slow:    func(median float64) bool { return median > slowPing.Seconds() },
		slowFix: "see which network MPI uses: UCX_NET_DEVICES, UCX_TLS, OMPI_MCA_btl_tcp_if_include",
		someFix: "see whether something else runs on these nodes, and their place in the network",
	})...)
}

func checkBandwidth(w World) []Finding {
	return w.checkLinks(linkCheck{ // check "ping" reports what has failed
		value: func(way Way) float64 { return way.Bandwidth }, unit: PerSecond,
		detail:   "large messages %s move at {}",
		slower:   func(v, median float64) float64 { return median / (v * slowerBandwidth) },
		slow:     func(median float64) bool { return median < slowBandwidth },
		slowText: ", less than 10 Gb/s Ethernet",
		slowFix:  "see which network MPI uses: UCX_NET_DEVICES, UCX_TLS, OMPI_MCA_btl_tcp_if_include",
		someFix:  "see whether something else uses these nodes' links",
	})
}

// A linkCheck compares a property of the links between ranks with that of the others.
type linkCheck struct {
	value             func(Way) float64
	unit              Unit
	detail            string                          // with a place for "between nodes"
	slower            func(v, median float64) float64 // above 1: a link is slower than the others
	slow              func(median float64) bool       // links between nodes are slow in general
	slowText, slowFix string                          // the finding and the advice then
	someFix           string                          // what to do about single ones
}

// checkLinks applies a check to the links between nodes, and to those inside nodes.
func (w World) checkLinks(c linkCheck) (found []Finding) {
	inside, across, _ := w.kinds()
	for _, kind := range []struct {
		name string
		ways []Way
	}{{"between nodes", across}, {"inside nodes", inside}} {
		if len(kind.ways) == 0 {
			continue
		}
		var values []float64
		for _, way := range kind.ways {
			values = append(values, c.value(way))
		}
		slices.Sort(values)
		n, median := len(values), values[len(values)/2]
		slow := w.slow(kind.ways, c.value, c.unit, func(v float64) float64 { return c.slower(v, median) })
		detail, amounts := fmt.Sprintf(c.detail, kind.name)+" (1 way)", []Amount{{median, c.unit}}
		if n > 1 {
			detail = fmt.Sprintf(c.detail+", from {} to {} (%d ways)", kind.name, n)
			amounts = append(amounts, Amount{values[0], c.unit}, Amount{values[n-1], c.unit})
		}
		switch {
		case kind.name == "between nodes" && c.slow(median):
			found = append(found, warning(detail+c.slowText, c.slowFix, amounts...)...)
		case slow != "":
			found = append(found, warning(detail+"; slow are "+slow, c.someFix, amounts...)...)
		default:
			found = append(found, good(detail, amounts...)...)
		}
	}
	return found
}

// slow names the ways whose value is worse than 1, the worst first, up to five of them.
func (w World) slow(ways []Way, value func(Way) float64, unit Unit,
	worse func(float64) float64,
) string {
	found := slices.DeleteFunc(slices.Clone(ways),
		func(way Way) bool { return worse(value(way)) <= 1 })
	slices.SortStableFunc(found, func(a, b Way) int {
		return cmp.Compare(worse(value(b)), worse(value(a)))
	})
	var names []string
	for _, way := range found[:min(len(found), namedWays)] {
		names = append(names, fmt.Sprintf("%s-%s (%s)", w.host(way.From), w.host(way.To),
			Amount{value(way), unit}))
	}
	if more := len(found) - namedWays; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// checkClock compares clocks with their median, so that it names a single wrong clock even if that
// is rank 0's.
func checkClock(w World) []Finding {
	if len(w.Offsets) < 2 {
		return nil
	}
	sorted := slices.SortedFunc(slices.Values(w.Offsets),
		func(a, b Offset) int { return cmp.Compare(a.Offset, b.Offset) })
	median := sorted[(len(sorted)-1)/2].Offset
	var most time.Duration
	var off []string
	for _, o := range w.Offsets {
		apart := max(0, (o.Offset-median).Abs()-o.Error)
		most = max(most, apart)
		if host := w.host(o.Rank); apart > clockWarning && !slices.Contains(off, host) {
			off = append(off, host)
		}
	}
	const detail = "clocks are up to {} apart"
	switch slices.Sort(off); {
	case most > clockBad:
		return bad(detail+": "+slurm.FormatHostlist(off),
			"have the clocks of these nodes set (chronyd, ntpd): times of logs and files cannot be compared",
			lasting(most))
	case most > clockWarning:
		return warning(detail+": "+slurm.FormatHostlist(off),
			"have the clocks of these nodes set (chronyd, ntpd)", lasting(most))
	}
	return good(detail, lasting(most))
}
