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
