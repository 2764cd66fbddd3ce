package top

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"charm.land/lipgloss/v2"
	"pgregory.net/rapid"

	"rankpool/mpicache/stats"
)

var updateTop = flag.Bool("update-top", false, "write testdata anew")

func viewOf(nodes int) view {
	return view{
		title: "job 4242", at: time.Date(2026, 9, 1, 12, 3, 4, 0, time.UTC), ranks: nodes,
		rows: rowsOf(someNodes(nodes, 100), someNodes(nodes, 101)),
	}
}

func TestFrames(t *testing.T) {
	for _, tc := range []struct {
		name   string
		colors bool
		nodes  int
		change func(*view)
	}{
		{"plain", false, 4, func(*view) {}},
		{"color", true, 4, func(v *view) { v.bars = true }},
		{"narrow", false, 4, func(v *view) { v.bars, v.width, v.height = true, 80, 24 }},
		{"many", false, 64, func(v *view) { v.bars, v.width, v.height, v.skip = true, 120, 20, 17 }},
		{"by_stall", false, 4, func(v *view) { v.byStall, v.width = true, 100 }},
		{"one_reading", false, 2, func(v *view) { v.rows = rowsOf(someNodes(2, 100)) }},
		{"before_training", false, 1, func(v *view) {
			begin := stats.Reading{Host: "here", SlabBytes: 1 << 20}
			begin.Epoch = -1
			later := begin
			later.Seconds = 1
			v.title, v.rows = "rankpool-0-pid12-00ab",
				rowsOf([]stats.Reading{begin}, []stats.Reading{later})
		}},
		{"silent", false, 4, func(v *view) {
			v.rows = slices.Delete(v.rows, 2, 3)
			v.notes = nodesStatus{
				Rank: 0, Ranks: 4,
				Nodes: []stats.Reading{{Rank: 0}, {Rank: 1}, {Rank: 3}},
			}.notes()
		}},
		{"started_again", false, 4, func(v *view) {
			for i, kept := range []int64{119, 120, 120, 118} {
				v.rows[i].Kept, v.rows[i].KeptOf = kept, 120
			}
		}},
		{"jobs", false, 2, func(v *view) {
			v.rows = rowsOf(withJobs(someNodes(2, 100), "", "a", "b", "c"),
				withJobs(someNodes(2, 101), "", "a", "b", "c"))
		}},
		{"many_jobs", false, 2, func(v *view) {
			v.width, v.height = 60, 20
			names := strings.Split("abcdefghij", "")
			v.rows = rowsOf(withJobs(someNodes(2, 100), names...))
		}},
		{"another_rank", false, 4, func(v *view) {
			v.rows = v.rows[2:3]
			v.notes = nodesStatus{Rank: 2, Ranks: 4, Nodes: []stats.Reading{{Rank: 2}}}.notes()
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := viewOf(tc.nodes)
			tc.change(&v)
			var got strings.Builder
			for _, l := range v.frame() {
				if !tc.colors {
					l = stripped(l)
				}
				got.WriteString(l + "\n")
			}
			golden := filepath.Join("testdata", tc.name+".txt")
			if *updateTop {
				if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got.String(), want)
			}
		})
	}
}

// Whatever the terminal's size, the frame fits, and a rank and its node are shown.
func TestFrameFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := viewOf(rapid.IntRange(0, 40).Draw(t, "nodes"))
		v.width, v.height = rapid.IntRange(1, 300).Draw(t, "width"),
			rapid.IntRange(1, 60).Draw(t, "height")
		v.bars, v.byStall = rapid.Bool().Draw(t, "bars"), rapid.Bool().Draw(t, "by stall")
		v.skip = rapid.IntRange(0, 40).Draw(t, "skip")
		v.notes = rapid.SliceOfN(rapid.Just("something is worth saying"), 0, 3).Draw(t, "notes")
		lines := v.frame()
		if len(lines) > v.height {
			t.Errorf("%d lines on %d", len(lines), v.height)
		}
		for _, l := range lines {
			if n := lipgloss.Width(l); n > v.width {
				t.Errorf("%d columns on %d: %q", n, v.width, l)
			}
		}
		if v.skip < 0 || v.skip > max(0, len(v.rows)-1) {
			t.Errorf("skips %d of %d", v.skip, len(v.rows))
		}
	})
}

func TestStack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(4, 40).Draw(t, "width")
		var shares [4]float64
		sum := 0.0
		for i := range shares {
			shares[i] = float64(rapid.IntRange(0, 5).Draw(t, "part"))
			sum += shares[i]
		}
		if sum == 0 {
			return
		}
		for i := range shares {
			shares[i] /= sum
		}
		if n := lipgloss.Width(stack(shares, width)); n != width {
			t.Errorf("a stack of %v has %d columns, want %d", shares, n, width)
		}
	})
	if got := stripped(stack([4]float64{0.5, 0.499, 0, 0.001}, 10)); got != "████▓▓▓▓▓░" {
		t.Errorf("a source of one in a thousand is not seen: %s", got)
	}
}
