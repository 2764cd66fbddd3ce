package main

import (
	"strings"
	"testing"
	"time"
)

func TestPeerRows(t *testing.T) {
	// Steps take 10 s, reading 5 s, in the second epoch 4 s.
	w := workload{"W", 1000, 1_000_000, 100, time.Second}
	of := func(seconds ...float64) trained {
		var made trained
		for _, s := range seconds {
			made.Epochs = append(made.Epochs, trainedEpoch{Seconds: s})
		}
		return made
	}
	results := map[peer]map[int]trained{
		peers[0]: {20: of(10.05, 12)}, peers[1]: {20: of(11, 10)},
		peers[2]: {20: of(10, 11)}, peers[5]: {20: of(22, 10)},
	}
	want := map[string]string{ // the ratio, and whether that is reached
		"1: rankpool from files / bound":                 "1.0050 ",
		"1: rankpool from files / DataLoader from files": "1.0050 yes", // within 1 % of the bound
		"1: rankpool from shards / bound":                "1.1000 ",
		"1: rankpool from shards / WebDataset":           "0.5000 yes",
		"2: rankpool from files / bound":                 "1.20 ",
		"2: rankpool from files / DataLoader from files": "1.0909 no",
		"2: rankpool from shards / bound":                "1.0000 ",
		"2: rankpool from shards / WebDataset":           "1.0000 yes",
	}
	rows := peerRows(w, []int{20}, results)
	if len(rows) != len(want) {
		t.Errorf("%d rows, want %d", len(rows), len(want))
	}
	for _, r := range rows {
		what := strings.TrimPrefix(r.what, "W, 20 %, epoch ")
		if got := r.ratio + " " + r.verdict(); got != want[what] {
			t.Errorf("%s: %q, want %q", what, got, want[what])
		}
	}
	if w.bound(20, 1) != 10 || (workload{"W", 1000, 1_000_000, 100, 0}).bound(20, 1) != 4 {
		t.Error("the bound is the larger of the steps and the bytes that are not in memory")
	}
}

func TestFedRows(t *testing.T) {
	// One accelerator reads 50 MB/s: the bandwidth feeds 8 of them, or 10 with a fifth of the data
	// in memory.
	w := workload{"W", 1000, 500_000, 100, time.Second}
	all := []fed{
		{peers[0], map[int]float64{1: 1, 2: 0.9, 3: 0.86, 4: 0.8}},
		{peers[2], map[int]float64{1: 1, 2: 0.84}},
		{peers[3], map[int]float64{1: 1, 2: 0.95, 3: 0.8}},
	}
	want := [][3]string{ // rankpool's value, the other loader's, and whether rankpool reaches it
		{"8.00", "10.00", ""}, {"3", "2", "yes"}, {"90.0 %", "95.0 %", "no"},
	}
	rows := fedRows(w, all)
	if len(rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(rows), len(want))
	}
	for i, r := range rows {
		if got := [3]string{r.ours, r.other, r.verdict()}; got != want[i] {
			t.Errorf("%s: %q, want %q", r.what, got, want[i])
		}
	}
	all[0].au[2] = 0.991 // within 1 % of the bound
	all[2].au[2] = 0.995
	if r := fedRows(w, all)[2]; r.verdict() != "yes" {
		t.Errorf("%s: %s against %s is within 1 %% of all that can be", r.what, r.ours, r.other)
	}
}

func TestShardsAreForAllWorkers(t *testing.T) {
	for _, w := range workloads {
		for _, w := range []workload{w, w.small()} {
			size := w.shardBytes()
			shards := w.samples * (w.sampleBytes + tarHeader) / size
			if size < 1<<20 || shards < peerWorkers {
				t.Errorf("%s with %d samples: %d shards of %d bytes", w.name, w.samples, shards, size)
			}
		}
	}
}
