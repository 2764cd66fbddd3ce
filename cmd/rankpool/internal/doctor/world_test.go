package doctor

import (
	"slices"
	"strings"
	"testing"
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
	deaf := nodes(4)
	deaf[1].Unheard, deaf[3].Unheard = []int{2, 9}, []int{2}
	cut := nodes(8)
	for r := range cut {
		cut[r].Unheard = []int{(r + 1) % 8}
	}
	const reach = "each rank reaches every other"
	for _, c := range []struct {
		name  string
		world World
		want  []string
	}{
		{"all well", World{Reports: nodes(4)}, []string{
			"good " + reach,
		}},
		{
			"one that died before its greeting",
			World{Reports: unheard(nodes(3), 3), Lost: []Lost{{Rank: 3}}},
			[]string{"bad rank 3 has not reported, and does not respond"},
		},
		{
			"one that died in a check",
			World{Reports: nodes(3), Lost: []Lost{{Rank: 3, Host: "g04"}}},
			[]string{
				"bad rank 3 on g04 has not reported, and does not respond",
			},
		},
		{
			"all others died",
			World{Reports: unheard(nodes(1), 1, 2), Lost: []Lost{{Rank: 1}, {Rank: 2}}},
			[]string{
				"bad rank 1 has not reported, and does not respond",
				"bad rank 2 has not reported, and does not respond",
			},
		},
		{"a firewall", World{Reports: deaf}, []string{
			"bad no message came from rank 2 (g03) to rank 1 (g02), rank 9 to rank 1 (g02), " +
				"rank 2 (g03) to rank 3 (g04)",
		}},
		{"many pairs", World{Reports: cut}, []string{
			"bad no message came from rank 1 (g02) to rank 0 (g01), rank 2 (g03) to rank 1 (g02), " +
				"rank 3 (g04) to rank 2 (g03), rank 4 (g05) to rank 3 (g04), " +
				"rank 5 (g06) to rank 4 (g05), and 3 more",
		}},
	} {
		var got []string
		for _, f := range c.world.Findings() {
			got = append(got, string(f.Status)+" "+f.Detail)
			if f.Check != "ranks" || (f.Status != Good) != (f.Advice != "") ||
				strings.Count(f.Detail, nothingYet) != len(f.Sizes) {
				t.Errorf("%s: %+v", c.name, f)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// unheard returns reports of ranks that heard nothing from others.
func unheard(reports []Report, from ...int) []Report {
	for r := range reports {
		reports[r].Unheard = from
	}
	return reports
}

func TestCombine(t *testing.T) {
	finding := func(check string, s Status, detail, advice string, sizes ...int64) Finding {
		return Finding{Check: check, Status: s, Detail: detail, Advice: advice, Sizes: sizes}
	}
	reports := nodes(4)
	for r := range reports {
		reports[r].Findings = []Finding{
			finding("memory", Good, "{} free", "", int64(r+1)<<30),
			finding("cpus", Good, "Linux 6.1", ""),
		}
	}
	for r, library := range []string{"MPICH 4", "MPICH 4", "MPICH 4", "MPICH 5"} {
		reports[r].Findings = append(reports[r].Findings, finding("mpi", Good, library, ""))
	}
	const other = "this is not the same on all nodes: load the same modules; an environment on a " +
		"shared file system is the same for all"
	reports[3].Findings[1] = finding("cpus", Bad, "old", "update it")
	reports[0].Findings = append(reports[0].Findings, finding("ranks", Good, "fast", ""),
		finding("slurm", Good, "23.11", ""))
	want := []Finding{
		{Check: "mpi", Status: Warning, Detail: "MPICH 4", Advice: other, Node: "g[01-03]"},
		{Check: "mpi", Status: Warning, Detail: "MPICH 5", Advice: other, Node: "g04"},
		finding("ranks", Good, "fast", ""),
		finding("slurm", Good, "23.11", ""),
		{Check: "cpus", Status: Good, Detail: "Linux 6.1", Node: "g[01-03]"},
		{Check: "cpus", Status: Bad, Detail: "old", Advice: "update it", Node: "g04"},
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
	if Worst(got) != Bad || Worst(got[2:5]) != Good || Worst(nil) != Good {
		t.Error("Worst is wrong")
	}
}

func TestPrint(t *testing.T) {
	var text strings.Builder
	err := Print(&text, []Finding{
		{Check: "mpi", Status: Good, Detail: "fine", Node: "g[01-04]"},
		{Check: "cpus", Status: Warning, Detail: "odd\nthing", Advice: "do this", Node: "g[01-03]"},
		{Check: "cpus", Status: Good, Detail: "fine", Node: "g04"},
	})
	const want = `good     mpi   fine
warning  cpus  g[01-03]: odd thing
               -> do this
good     cpus  g04: fine
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

func TestFill(t *testing.T) {
	if got := fill("{} of {}", [][]int64{{1, 2}, {3 << 29, 2}, {9}}); got != "1 B to 1.5 GiB of 2 B" {
		t.Error(got)
	}
}
