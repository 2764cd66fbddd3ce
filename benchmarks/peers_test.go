package main

import (
	"slices"
	"testing"
	"time"
)

func TestPeerLines(t *testing.T) {
	// Steps take 10 s, reading 5 s, in the second epoch 4 s.
	w := workload{"W", 1000, 1_000_000, 100, time.Second}
	of := func(seconds ...float64) map[int]trained {
		var made trained
		for _, s := range seconds {
			made.Epochs = append(made.Epochs, trainedEpoch{Seconds: s, AU: 10 / s})
		}
		return map[int]trained{20: made}
	}
	results := map[peer]map[int]trained{
		fileLoaders[0]: of(10.05, 12), fileLoaders[1]: of(10, 11), fileLoaders[3]: of(12, 12.5),
		shardLoaders[0]: of(11, 10), shardLoaders[1]: of(22, 10), shardLoaders[2]: of(11.5, 10.2),
	}
	want := [][]string{
		{
			"W, 20 %, epoch 1", "10.00 s",
			"10.05 s, 100 %", "10.00 s, 100 %", "failed", "12.00 s, 83 %",
			"1.0050 yes", // within 1 % of the bound
			"11.00 s, 91 %", "22.00 s, 45 %", "11.50 s, 87 %", "failed", "0.9565 yes",
		},
		{
			"W, 20 %, epoch 2", "10.00 s",
			"12.00 s, 83 %", "11.00 s, 91 %", "failed", "12.50 s, 80 %", "1.0909 no",
			"10.00 s, 100 %", "10.00 s, 100 %", "10.20 s, 98 %", "failed", "1.0000 yes",
		},
	}
	lines := peerLines(w, []int{20}, results)
	for i, line := range want {
		if !slices.Equal(lines[i], line) || len(line) != len(besideHeader()) {
			t.Errorf("got %q, want %q", lines[i], line)
		}
	}
	if w.bound(20, 1) != 10 || (workload{"W", 1000, 1_000_000, 100, 0}).bound(20, 1) != 4 {
		t.Error("the bound is the larger of the steps and the bytes that are not in memory")
	}
}

func TestWithoutOursNothingIsCompared(t *testing.T) {
	w := workload{"W", 1000, 1_000_000, 100, time.Second}
	theirs := trained{Epochs: []trainedEpoch{{Seconds: 10}, {Seconds: 10}}}
	results := map[peer]map[int]trained{fileLoaders[1]: {20: theirs}}
	for _, line := range peerLines(w, []int{20}, results) {
		if line[2] != "failed" || line[6] != "" || line[11] != "" {
			t.Errorf("got %q", line)
		}
	}
}

func TestFedLines(t *testing.T) {
	// One accelerator reads 50 MB/s: the bandwidth feeds 8 of them, or 10 with a fifth of the data
	// in memory.
	w := workload{"W", 1000, 500_000, 100, time.Second}
	all := []fed{
		{fileLoaders[0], map[int]float64{1: 1, 2: 0.9, 3: 0.86, 4: 0.8}},
		{fileLoaders[1], map[int]float64{1: 1, 2: 0.84}},
		{fileLoaders[2], map[int]float64{1: 1, 2: 0.95, 3: 0.8}},
		{fileLoaders[3], map[int]float64{1: 0.5}},
	}
	want := [][]string{
		{"W, 20 %, accelerators at AU 85 %", "10.00", "3", "1", "2", "0", "1.50 yes"},
		{"W, 20 %, AU with 2 of them", "100.0 %", "90.0 %", "84.0 %", "95.0 %", "0.0 %", "0.9474 no"},
	}
	lines := fedLines(w, all)
	for i, line := range want {
		if !slices.Equal(lines[i], padded(line)) || len(lines[i]) != len(besideHeader()) {
			t.Errorf("got %q, want %q", lines[i], line)
		}
	}
	all[0].au[2] = 0.991 // within 1 % of the bound
	all[2].au[2] = 0.995
	if last := fedLines(w, all)[1][6]; last != "0.9960 yes" {
		t.Errorf("%s is within 1 %% of all that can be", last)
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
