package main

import (
	"reflect"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	got := table([]row{
		ratioRow("reads", "2 GB/s", "1 GB/s", 2, atLeast, 2),
		ratioRow("hits", "1 %", "2 %", 0.49949, atLeast, 0.5),
		plainRow("bytes a sample – all", "26 B", "", 26, 25, "25 B"),
		{what: "plain", ours: "1"},
	}).String()
	want := `| what                 | ours   | other  | ratio  | bar    | ok? |
| -------------------- | ------ | ------ | ------ | ------ | --- |
| reads                | 2 GB/s | 1 GB/s | 2.00   | ≥ 2    | yes |
| hits                 | 1 %    | 2 %    | 0.4995 | ≥ 0.5  | no  |
| bytes a sample – all | 26 B   |        |        | ≤ 25 B | no  |
| plain                | 1      |        |        |        |     |
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTablesWithOneHeaderAreJoined(t *testing.T) {
	a, b := []string{"a"}, []string{"b"}
	of := func(header []string, lines ...string) grid {
		g := grid{header: header}
		for _, line := range lines {
			g.lines = append(g.lines, []string{line})
		}
		return g
	}
	got := joined([]grid{of(a, "1", "2"), of(a, "3"), of(b), of(b, "4"), of(a, "5")})
	want := []grid{of(a, "1", "2", "3"), of(b, "4"), of(a, "5")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestChoose(t *testing.T) {
	usual, err := choose("")
	if err != nil || len(usual) == 0 {
		t.Errorf("%d sections, %v", len(usual), err)
	}
	for _, s := range sections {
		chosen := slices.ContainsFunc(usual, func(u section) bool { return u.name == s.name })
		if chosen == s.named {
			t.Errorf("%s: chosen is %t", s.name, chosen)
		}
	}
	if named, err := choose("staging,pfs"); err != nil || len(named) != 2 {
		t.Errorf("%v, %v", named, err)
	}
	two, err := choose("plan,hits")
	if err != nil || len(two) != 2 || two[0].name != "plan" || two[1].name != "hits" {
		t.Errorf("%v, %v", two, err)
	}
	if _, err := choose("plan,nothing"); err == nil {
		t.Error("a section that does not exist was chosen")
	}
}

func TestMedian(t *testing.T) {
	values := []float64{5, 1, 3}
	if got := median(values); got != 3 || values[0] != 5 {
		t.Errorf("the median of 5, 1, 3 is %v, and the values are %v", got, values)
	}
}
