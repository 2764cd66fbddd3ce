package sidebyside

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"rankpool/cmd/internal/report"
	"rankpool/cmd/internal/runlog"
)

// logOfEpochs returns the log of a training with an epoch for each accuracy. Each epoch has 100
// draws, of which the given number are hits, and takes 10 s, of which 2 s are waiting.
func logOfEpochs(hits int, accuracy ...float64) string {
	var log strings.Builder
	for e, a := range accuracy {
		fmt.Fprintf(&log, `{"event":"epoch","data":"train","draws":100,"epoch":%d,"hits_local":%d,`+
			`"storage_reads":%d,"storage_bytes":%d,"stall_seconds":2,"seconds":10,"metrics":{"accuracy":%v}}`+
			"\n", e, hits, 100-hits, 1000*(100-hits), a)
	}
	return log.String()
}

func runOf(t *testing.T, log string) *runlog.Run {
	t.Helper()
	var b runlog.Builder
	if _, err := runlog.Read(strings.NewReader(log), b.Add); err != nil {
		t.Fatal(err)
	}
	return b.Run()
}

func sideOf(t *testing.T, name string, logs ...string) Side {
	t.Helper()
	s := Side{Name: name}
	for _, log := range logs {
		s.Runs = append(s.Runs, NewSideRun(runOf(t, log), nil))
	}
	return s
}

func writtenOf(t *testing.T, c *Comparison) string {
	t.Helper()
	var page strings.Builder
	if err := c.Write(&page, "test"); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

func TestComparisonTables(t *testing.T) {
	c := Comparison{Sides: []Side{
		sideOf(t, "lru", logOfEpochs(10, 0.5, 0.8, 0.85), logOfEpochs(14, 0.5, 0.6, 0.83)),
		{Name: "shade", Missing: "it is not live"},
		sideOf(t, "rankpool", logOfEpochs(60, 0.7, 0.9, 0.95)),
	}}
	tables := c.Tables()
	// 0.83 is the highest accuracy that all three runs reach: after 3, 3 and 2 epochs
	for i, want := range [][][]string{{
		{
			"system", "accuracy", "time to 83.0 %", "epochs to 83.0 %", "samples to 83.0 %",
			"samples trained", "time", "waited", "of its time",
		},
		{"lru", "84.00 ± 1.41 %", "30 s", "3", "300", "300", "30 s", "6 s", "20.0 %"},
		{"rankpool", "95.00 %", "20 s", "2", "200", "300", "30 s", "6 s", "20.0 %"},
	}, {
		{
			"system", "hits", "planned hits", "substituted", "storage reads", "bytes of these",
			"bytes read",
		},
		{"lru", "12.0 ± 2.8 %", "0.0 %", "0.0 %", "264 ± 8", "264 ± 8.49 kB", "–"},
		{"rankpool", "60.0 %", "0.0 %", "0.0 %", "120", "120 kB", "–"},
	}} {
		got := append([][]string{tables[i].Head}, tables[i].Rows...)
		if !slices.EqualFunc(got, want, slices.Equal[[]string]) {
			t.Errorf("table %d is\n%q, want\n%q", i, got, want)
		}
	}
	page := writtenOf(t, &c)
	for _, want := range []string{
		"<td><b>20 s</b></td>", "<td><b>60.0 %</b></td>", "<td>20.0 %</td>",
		"not trained: it is not live",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	c.Target = 0.9
	if got := c.Tables()[0].Rows[0][2]; got != "–" {
		t.Errorf("lru never reached 90 %%, and its time to that is %q", got)
	}
}

// TestFallbackBytesCountOnce checks that the bytes of fallback reads are not added to an epoch's
// storage bytes, which include them.
func TestFallbackBytesCountOnce(t *testing.T) {
	log := strings.Replace(logOfEpochs(90, 0.5), `"storage_bytes"`,
		`"fallback_reads":5,"fallback_bytes":4000,"storage_bytes"`, 1)
	c := Comparison{Sides: []Side{sideOf(t, "lru", log)}}
	if row := c.Tables()[1].Rows[0]; row[4] != "15" || row[5] != "10 kB" {
		t.Errorf("%q", row)
	}
}

func TestComparisonRemarks(t *testing.T) {
	few := strings.ReplaceAll(logOfEpochs(10, 0.5, 0.6), `"hits_local":10`, `"hits_local":10,"substituted":5,"fallback_reads":5`)
	few = strings.ReplaceAll(few, `"storage_reads":90`, `"storage_reads":30`)
	c := Comparison{Notes: []string{"A note."}, Sides: []Side{
		sideOf(t, "lru", logOfEpochs(10, 0.5, 0.8, 0.85)), sideOf(t, "icache", few),
		{Name: "shade", Missing: "why"},
		sideOf(t, "mute", strings.ReplaceAll(logOfEpochs(10, 0.5, 0.6, 0.7), "accuracy", "loss")),
	}}
	var got []string
	for _, r := range c.remarks() {
		got = append(got, r.Text)
	}
	want := []string{
		"icache trained on 33.3 % of the samples that others did",
		"icache finished 2 of 3 epochs",
		"icache served another sample than the one drawn in 10.0 % of the draws",
		"icache: trainers read 10 samples from storage themselves",
		"shade was not trained: why",
		"No accuracy of mute: training must call sampler.metric",
		"A note.",
	}
	if len(got) != len(want) {
		t.Fatalf("the remarks are %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("remark %d is %q, want %q", i, got[i], want[i])
		}
	}
}

func TestComparisonPage(t *testing.T) {
	c := Comparison{Title: "<b>", Sides: []Side{sideOf(t, "a<b", logOfEpochs(10, 0.5, 0.8))}}
	read := int64(5e6)
	c.Sides[0].Runs[0] = NewSideRun(c.Sides[0].Runs[0].Log, &read)
	page := writtenOf(t, &c)
	for _, id := range []string{"time", "epochs", "sources", "times", "storage"} {
		if !strings.Contains(page, `<section id="`+id+`">`) {
			t.Errorf("the page has no section %s", id)
		}
	}
	if !strings.Contains(page, "5 MB") || !strings.Contains(page, "bytes from emulated storage") {
		t.Error("the page lacks what emulated storage counted")
	}
	for _, never := range []string{"a<b", "<script", "http"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q", never)
		}
	}
	if writtenOf(t, &c) != page {
		t.Error("the same comparison gives another page")
	}
	if silent := writtenOf(t, &Comparison{}); !strings.Contains(silent, "No system was trained.") {
		t.Error("an empty page does not explain that")
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		format func(float64) string
		want   string
	}{
		{nil, report.Percent, "–"},
		{[]float64{0.25}, report.Percent, "25.0 %"},
		{[]float64{0.25, 0.25}, report.Percent, "25.0 %"},
		{[]float64{0.2, 0.4}, report.Percent, "30.0 ± 14.1 %"},
		{[]float64{0.2, math.NaN()}, report.Percent, "–"},
		{[]float64{1e6, 1.001e6}, sizeText, "1 MB ± 707 B"},
	} {
		if got := spreadOf(c.values).text(c.format); got != c.want {
			t.Errorf("the spread of %v is %q, want %q", c.values, got, c.want)
		}
	}
}
