package stats

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

// TestTable checks that an epoch's line has exactly the counters of the table, and that what is
// written to a struct is read from it again.
func TestTable(t *testing.T) {
	var s Sums
	var named []string
	for c := range s {
		s[c] = float64(c + 1)
		if name := Table[c].Epoch; name != "" {
			named = append(named, name)
		}
	}
	text, err := json.Marshal(Count{})
	var line map[string]any
	if err == nil {
		err = json.Unmarshal(text, &line)
	}
	delete(line, "epoch")
	slices.Sort(named)
	if got := slices.Sorted(maps.Keys(line)); err != nil || !slices.Equal(got, named) {
		t.Errorf("an epoch's line has %v, the table %v: %v", got, named, err)
	}
	var r Reading
	var j Job
	var c Count
	r.Set(s)
	j.Set(s)
	c.Set(s)
	ofRank, ofJob, ofEpoch := r.Sums(), j.Sums(), c.Sums()
	for k, want := range s {
		if got := ofRank[k]; Table[k].Rank != "" && got != want || Table[k].Rank == "" && got != 0 {
			t.Errorf("of a rank %q is %v, want %v", Table[k].Rank, got, want)
		}
		if got := ofJob[k]; Counter(k) <= PackageWriteBytes && got != want ||
			Counter(k) > PackageWriteBytes && got != 0 {
			t.Errorf("of a training %q is %v, want %v", Table[k].Rank, got, want)
		}
		if got := ofEpoch[k]; Table[k].Epoch != "" && got != want || Table[k].Epoch == "" && got != 0 {
			t.Errorf("of an epoch %q is %v, want %v", Table[k].Epoch, got, want)
		}
	}
	if r.Machine.StorageReads != int64(ReadCount)+1 || c.Seconds != float64(TrainSeconds)+1 {
		t.Errorf("%+v, %+v", r, c)
	}
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
	a := Count{HitsLocal: 3, StallSeconds: 1, Seconds: 5, Metrics: map[string]float64{"loss": 1}}
	a.Add(&Count{
		HitsLocal: 4, FallbackReads: 2, StallSeconds: 2, Seconds: 4,
		Metrics: map[string]float64{"loss": 2},
	})
	if a.HitsLocal != 7 || a.FallbackReads != 2 || a.StallSeconds != 3 || a.Seconds != 5 ||
		a.Draws() != 9 || a.Metrics["loss"] != 2 {
		t.Errorf("%+v", a)
	}
	if s := Convert(Counts{HitsLocal: 2, StallSeconds: 1_500_000}); s[HitsLocal] != 2 ||
		s[StallSeconds] != 1.5 {
		t.Errorf("%v", s)
	}
	g := Reading{Machine: Machine{GPUs: []GPU{{IdleSeconds: 1}, {IdleSeconds: 2}}}}
	if s := g.Sums(); s[GPUIdle] != 3 {
		t.Errorf("%v s idle", s[GPUIdle])
	}
}

// TestUnmeasured checks that time that was not measured is null in JSON, also in sums with others,
// and is NaN when it is read again.
func TestUnmeasured(t *testing.T) {
	c, other := Count{Seconds: 4}, Count{StallSeconds: 1.5, Seconds: 2}
	c.Set(Convert(Counts{StallSeconds: 7e6, TrainSeconds: 4e6, Unmeasured: 1}))
	other.Add(&c)
	text, err := json.Marshal(other)
	if err != nil || !strings.Contains(string(text), `"stall_seconds":null,"seconds":4,`) {
		t.Errorf("%s, %v", text, err)
	}
	var again Count
	if err := json.Unmarshal(text, &again); err != nil || !math.IsNaN(float64(again.StallSeconds)) {
		t.Errorf("%+v, %v", again, err)
	}
	sums := again.Sums()
	if share := sums.Share(StallSeconds, TrainSeconds); !math.IsNaN(share) {
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
