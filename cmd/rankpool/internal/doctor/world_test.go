package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/slurm"
)

// nodes returns the reports of n ranks on nodes of their own: g01, g02 and so on.
func nodes(n int) []Report {
	var all []Report
	for r := range n {
		all = append(all, Report{Rank: r, Host: "g0" + string(rune('1'+r))})
	}
	return all
}

func TestWorld(t *testing.T) {
	ms, us := time.Millisecond, time.Microsecond
	ways := func(pings ...time.Duration) (all []Way) {
		for i, p := range pings {
			all = append(all, Way{From: i, To: i + 1, Ping: p, Bandwidth: 10e9})
		}
		return all
	}
	rates := func(rates ...float64) (all []Way) {
		for i, rate := range rates {
			all = append(all, Way{From: i, To: i + 1, Ping: 10 * us, Bandwidth: rate})
		}
		return all
	}
	clocks := func(offsets ...time.Duration) (all []Offset) {
		for r, o := range offsets {
			all = append(all, Offset{r, o, ms})
		}
		return all
	}
	for _, c := range []struct {
		check  string
		world  World
		want   Status
		detail string
	}{
		{
			"ranks",
			World{Job: slurm.Job{Nodes: 4}, Reports: nodes(4)},
			Good,
			"one rank on each of {} nodes",
		},
		{"ranks", World{Job: slurm.Job{Nodes: slurm.Absent}, Reports: nodes(2)}, Good, "one rank"},
		{"ranks", World{Job: slurm.Job{Nodes: 6}, Reports: nodes(4)}, Warning, "on 4 of 6 nodes"},
		{
			"ranks",
			World{Job: slurm.Job{Nodes: 5}, Reports: nodes(4), Lost: []Lost{{Rank: 4}}},
			Bad,
			"rank 4 has not reported",
		},
		{
			"ping",
			World{Reports: nodes(5), Ways: ways(10*us, 12*us, 11*us, 13*us)},
			Good,
			"between nodes take {}, from {} to {} (4 ways)",
		},
		// its median is the third
		{"ping", World{Reports: nodes(5), Ways: ways(10*us, 12*us, 400*us, 900*us)}, Good, "(4 ways)"},
		{
			"ping",
			World{Reports: nodes(5), Ways: ways(10*us, 12*us, 11*us, 900*us)},
			Warning,
			"slow are g04-g05 (900 µs)",
		},
		// noise
		{"ping", World{Reports: nodes(5), Ways: ways(1*us, 1*us, 1*us, 90*us)}, Good, "(4 ways)"},
		{"ping", World{Reports: nodes(3), Ways: ways(3*ms, 3*ms)}, Warning, "between nodes"},
		{"bandwidth", World{Reports: nodes(4), Ways: rates(10e9, 11e9, 12e9)}, Good, "move at {}"},
		{
			"bandwidth",
			World{Reports: nodes(5), Ways: rates(2e9, 12e9, 3e9, 11e9)},
			Warning,
			"slow are g01-g02 (2.0 GB/s), g03-g04 (3.0 GB/s)",
		},
		{"bandwidth", World{Reports: nodes(3), Ways: rates(0.1e9, 0.1e9)}, Warning, "10 Gb/s"},
		{
			"bandwidth",
			World{Reports: []Report{{0, "a", nil}, {1, "a", nil}}, Ways: rates(0.1e9)},
			Good,
			"inside nodes",
		},
		{"clock", World{Reports: nodes(3), Offsets: clocks(0, 2*ms, -3*ms)}, Good, "up to {} apart"},
		{"clock", World{Reports: nodes(3), Offsets: clocks(0, 80*ms, 0)}, Warning, "apart: g02"},
		// rank 0's own is wrong
		{
			"clock",
			World{Reports: nodes(3), Offsets: clocks(0, 3*time.Second, 3*time.Second)},
			Bad,
			"apart: g01",
		},
		// within the error
		{
			"clock",
			World{Reports: nodes(3), Offsets: []Offset{{0, 0, 0}, {1, 60 * ms, 20 * ms}}},
			Good,
			"apart",
		},
	} {
		found := between[c.check](c.world)
		if len(found) != 1 || found[0].Status != c.want || !strings.Contains(found[0].Detail, c.detail) ||
			strings.Count(found[0].Detail, nothingYet) != len(found[0].Amounts) ||
			(c.want != Good) != (found[0].Advice != "") {
			t.Errorf("%s: %+v, want %s with %q", c.check, found, c.want, c.detail)
		}
	}
}

func TestSlowWaysAreFew(t *testing.T) {
	var ways []Way
	for r := range 20 {
		ways = append(ways, Way{From: r, To: r + 1, Bandwidth: 10e9})
	}
	for r := range 7 {
		ways[r].Bandwidth = float64(r+1) * 1e8
	}
	text := World{}.slow(ways, func(w Way) float64 { return w.Bandwidth }, PerSecond,
		func(v float64) float64 { return 10e9 / (3 * v) })
	if !strings.HasPrefix(text, "rank 0-rank 1 (100 MB/s), ") ||
		!strings.HasSuffix(text, ", and 2 more") || strings.Count(text, "(") != 5 {
		t.Error(text)
	}
}

func TestCombine(t *testing.T) {
	finding := func(check string, s Status, detail, advice string, amounts ...Amount) Finding {
		return Finding{Check: check, Status: s, Detail: detail, Advice: advice, Amounts: amounts}
	}
	reports := nodes(4)
	for r := range reports {
		reports[r].Findings = []Finding{
			finding("memory", Good, "{} free", "", bytesOf(int64(r+1)<<30)),
			finding("kernel", Good, "Linux 6.1", ""),
		}
	}
	reports[3].Findings[1] = finding("kernel", Bad, "old", "update it")
	reports[0].Findings = append(reports[0].Findings, finding("ping", Good, "fast", ""),
		finding("slurm", Good, "23.11", ""))
	want := []Finding{
		finding("ping", Good, "fast", ""),
		finding("slurm", Good, "23.11", ""),
		{Check: "kernel", Status: Good, Detail: "Linux 6.1", Node: "g[01-03]"},
		{Check: "kernel", Status: Bad, Detail: "old", Advice: "update it", Node: "g04"},
		{Check: "memory", Status: Good, Detail: "1.0 GiB to 4.0 GiB free", Node: "g[01-04]"},
	}
	got := Combine(reports)
	if !slices.EqualFunc(got, want, func(a, b Finding) bool {
		return a.Check == b.Check && a.Status == b.Status && a.Detail == b.Detail &&
			a.Advice == b.Advice && a.Node == b.Node
	}) {
		t.Errorf("Combine = %+v, want %+v", got, want)
	}
	if one := Combine(reports[:1]); one[len(one)-1].Node != "" ||
		one[len(one)-1].Detail != "1.0 GiB free" {
		t.Errorf("of one node: %+v", one)
	}
	if Worst(got) != Bad || Worst(got[:3]) != Good || Worst(nil) != Good {
		t.Error("Worst is wrong")
	}
}

func TestPrint(t *testing.T) {
	var text strings.Builder
	err := Print(&text, []Finding{
		{Check: "mpi", Status: Good, Detail: "fine", Node: "g[01-04]"},
		{Check: "kernel", Status: Warning, Detail: "odd\nthing", Advice: "do this", Node: "g[01-03]"},
		{Check: "kernel", Status: Good, Detail: "fine", Node: "g04"},
	})
	const want = `good     mpi     fine
warning  kernel  g[01-03]: odd thing
                 -> do this
good     kernel  g04: fine
2 good, 1 warning, 0 bad
`
	if err != nil || text.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text.String(), want)
	}
	text.Reset()
	if err := PrintJSON(&text, nil); err != nil || text.String() != "[]\n" {
		t.Errorf("%v %q", err, text.String())
	}
}

func TestAmount(t *testing.T) {
	for want, a := range map[string]Amount{
		"1,234": count(1234), "1.5 GiB": bytesOf(int64(3 << 29)), "2.5 GB/s": {2.5e9, PerSecond},
		"12 µs":   lasting(12 * time.Microsecond),
		"1.23 ms": lasting(1234 * time.Microsecond), "2 s": lasting(2 * time.Second),
		"45 min": lasting(45 * time.Minute), "1.5 h": lasting(90 * time.Minute),
	} {
		if got := a.String(); got != want {
			t.Errorf("%+v = %q, want %q", a, got, want)
		}
	}
	if got := fill("{} of {}", [][]Amount{
		{count(1), count(2)},
		{count(3), count(2)},
		{count(9)},
	}); got != "1 to 3 of 2" {
		t.Error(got)
	}
}
