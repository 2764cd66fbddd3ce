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
	"github.com/charmbracelet/x/ansi"
	"pgregory.net/rapid"

	"rankpool/mpicache/door"
	"rankpool/mpicache/stats"
)

var updateTop = flag.Bool("update-top", false, "write testdata anew")

func viewOf(nodes int) *run {
	return &run{
		dir: "rankpool-0-slurm4242", at: time.Date(2026, 9, 1, 12, 3, 4, 0, time.UTC),
		status: door.Status{Ranks: nodes},
		rows:   rowsOf(someNodes(nodes, 100), someNodes(nodes, 101)),
	}
}

func TestFrames(t *testing.T) {
	for _, tc := range []struct {
		name   string
		colors bool
		nodes  int
		change func(*run)
	}{
		{"plain", false, 4, func(*run) {}},
		{"color", true, 4, func(*run) {}},
		{"by_stall", false, 4, func(v *run) { v.byStall = true }},
		{"one_reading", false, 2, func(v *run) { v.rows = rowsOf(someNodes(2, 100)) }},
		{"before_training", false, 1, func(v *run) {
			begin := stats.Reading{Host: "here", SlabBytes: 1 << 20}
			begin.Epoch = -1
			later := begin
			later.Seconds = 1
			v.dir, v.rows = "rankpool-0-pid12-00ab",
				rowsOf([]stats.Reading{begin}, []stats.Reading{later})
		}},
		{"silent", false, 4, func(v *run) {
			v.rows = slices.Delete(v.rows, 2, 3)
			v.notes = notesOn(door.Status{
				Rank: 0, Ranks: 4,
				Nodes: []stats.Reading{{Rank: 0}, {Rank: 1}, {Rank: 3}},
			})
		}},
		{"started_again", false, 4, func(v *run) {
			for i, kept := range []int64{119, 120, 120, 118} {
				v.rows[i].Kept, v.rows[i].KeptOf = kept, 120
			}
		}},
		{"jobs", false, 2, func(v *run) {
			v.rows = rowsOf(withJobs(someNodes(2, 100), "", "a", "b", "c"),
				withJobs(someNodes(2, 101), "", "a", "b", "c"))
		}},
		{"another_rank", false, 4, func(v *run) {
			v.rows = v.rows[2:3]
			v.notes = notesOn(door.Status{Rank: 2, Ranks: 4, Nodes: []stats.Reading{{Rank: 2}}})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := viewOf(tc.nodes)
			tc.change(v)
			var got strings.Builder
			for _, l := range v.frame() {
				if !tc.colors {
					l = strings.TrimRight(ansi.Strip(l), " ")
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

func TestStack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(4, 40).Draw(t, "width")
		var shares [4]stats.Measured
		sum := stats.Measured(0)
		for i := range shares {
			shares[i] = stats.Measured(rapid.IntRange(0, 5).Draw(t, "part"))
			sum += shares[i]
		}
		if sum == 0 {
			return
		}
		for i := range shares {
			shares[i] /= sum
		}
		if n := lipgloss.Width(stack(width, shares[:]...)); n != width {
			t.Errorf("a stack of %v has %d columns, want %d", shares, n, width)
		}
	})
	if got := ansi.Strip(stack(10, 0.5, 0.499, 0, 0.001)); got != "████▓▓▓▓▓░" {
		t.Errorf("a source of one in a thousand is not seen: %s", got)
	}
}
