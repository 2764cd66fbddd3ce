package stats

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// TestLines checks that what is written to a line is read from it again, and that counters which
// only some systems have are left out where they are 0.
func TestLines(t *testing.T) {
	var s Sums
	for c := range s {
		s[c] = float64(c + 1)
	}
	r := Reading{Rank: 3, Progress: Progress{Epoch: 2, Sums: s}, Jobs: []Job{{
		Name: "a", Progress: Progress{Epoch: 1, Sums: s}, Benefit: Benefit{BatchSeconds: 2},
	}}}
	e := Epoch{Event: "epoch", Epoch: 4, Sums: s}
	whole := Summary{Whole{Ranks: 2}, e}
	var againR Reading
	var againE Epoch
	var againWhole Summary
	again(t, r, &againR)
	again(t, e, &againE)
	again(t, whole, &againWhole)
	if j := againR.Jobs[0]; againR.Rank != 3 || againR.Epoch != 2 || j.Name != "a" || j.Epoch != 1 ||
		j.BatchSeconds != 2 || againE.Event != "epoch" || againE.Epoch != 4 || againWhole.Ranks != 2 ||
		againWhole.Sums != againE.Sums {
		t.Errorf("%+v, %+v, %+v", againR, againE, againWhole)
	}
	for c, want := range s {
		for of, got := range map[owner]float64{
			ofRank: againR.Sums[c], ofJob: againR.Jobs[0].Sums[c], ofEpoch: againE.Sums[c],
		} {
			if named := of.field(Counter(c)) != ""; named && got != want || !named && got != 0 {
				t.Errorf("%q of %d is %v, want %v", Table[c].Name, of, got, want)
			}
		}
	}
	text := again(t, Reading{}, &againR)
	if strings.Contains(text, "substitute") || !strings.Contains(text, `"fallback_reads":0`) {
		t.Errorf("without a system: %s", text)
	}
}

// again encodes a value, and decodes it into another.
func again(t *testing.T, v, into any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(text)
}

// TestMetricsHaveHelp checks that the first counter of each metric, and no other, has its help.
func TestMetricsHaveHelp(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range Table {
		if row.Metric != "" && (row.Help == "") != seen[row.Metric] {
			t.Errorf("%s: help %q", row.Metric, row.Help)
		}
		if seen[row.Metric] = true; row.Help != "" && row.Metric == "" {
			t.Errorf("help without a metric: %q", row.Help)
		}
	}
}

func TestCounts(t *testing.T) {
	a := Epoch{
		Sums:    Sums{HitsLocal: 3, StallSeconds: 1, TrainSeconds: 5},
		Metrics: map[string]float64{"loss": 1},
	}
	a.Merge(&Epoch{
		Sums:    Sums{HitsLocal: 4, FallbackReads: 2, StallSeconds: 2, TrainSeconds: 4},
		Metrics: map[string]float64{"loss": 2},
	})
	if (a.Sums != Sums{HitsLocal: 7, FallbackReads: 2, StallSeconds: 3, TrainSeconds: 5}) ||
		a.Draws() != 9 || a.Metrics["loss"] != 2 {
		t.Errorf("%+v", a)
	}
	if s := Convert(Counts{HitsLocal: 2, StallSeconds: 1_500_000}); s[HitsLocal] != 2 ||
		s[StallSeconds] != 1.5 {
		t.Errorf("%v", s)
	}
	g := Reading{Machine: Machine{StorageReads: 4, GPUs: []GPU{{IdleSeconds: 1}, {IdleSeconds: 2}}}}
	if s := g.Totals(); s[GPUIdle] != 3 || s[ReadCount] != 4 {
		t.Errorf("%v s idle, %v reads", s[GPUIdle], s[ReadCount])
	}
}

// TestUnmeasured checks that time that was not measured is null in JSON, also in sums with others,
// and is NaN when it is read again.
func TestUnmeasured(t *testing.T) {
	c := Epoch{Sums: Convert(Counts{StallSeconds: 7e6, TrainSeconds: 4e6, Unmeasured: 1})}
	other := Epoch{Sums: Sums{StallSeconds: 1.5, TrainSeconds: 2}}
	other.Merge(&c)
	var read Epoch
	if text := again(t, other, &read); !strings.Contains(text, `"stall_seconds":null`) ||
		!strings.Contains(text, `"seconds":4`) {
		t.Error(text)
	}
	if share := read.Share(StallSeconds, TrainSeconds); !math.IsNaN(share) {
		t.Errorf("training waited in %v of its time", share)
	}
}

func TestRatio(t *testing.T) {
	if got := Ratio(3, 4); got != 0.75 {
		t.Error(got)
	}
	for _, by := range []float64{0, 1e-300} {
		if got := Ratio(1e10, by); !math.IsNaN(got) {
			t.Errorf("by %v: %v", by, got)
		}
	}
}
