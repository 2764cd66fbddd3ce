package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/mpicache"
)

// interval is one of a single GPU that was sampled throughout.
func interval(seconds, idle, stalled float64) idleInterval {
	return idleInterval{seconds: seconds, stalled: stalled, sampled: []float64{seconds}, idle: []float64{idle}}
}

func TestIdleJoin(t *testing.T) {
	tests := []struct {
		name      string
		intervals []idleInterval
		want      idleSums
	}{
		{"busy and never waiting", []idleInterval{interval(1, 0, 0), interval(1, 0, 0)}, idleSums{2, 0, 0}},
		{"idle while waiting", []idleInterval{interval(1, 0.6, 0.4)}, idleSums{1, 0.6, 0.4}},
		{"waiting behind work that was queued", []idleInterval{interval(1, 0.1, 0.4)}, idleSums{1, 0.1, 0.1}},
		{"idle and not waiting in another second", []idleInterval{interval(1, 0, 0.5), interval(1, 0.5, 0)}, idleSums{2, 0.5, 0}},
		{
			// 2.5 s become known in the third second: all of it, all of the second, and half a second of the first.
			"a long wait, known at its end",
			[]idleInterval{interval(1, 0.25, 0), interval(1, 1, 0), interval(1, 0.75, 2.5)},
			idleSums{3, 2, 2},
		},
		{
			// The first second has 0.5 s left for the 1.5 s of the second: its idle time of 0.75 s is covered to the end.
			"what is covered stays covered once",
			[]idleInterval{interval(1, 0.75, 0.5), interval(1, 0, 1.5)},
			idleSums{2, 0.75, 0.75},
		},
		{"more waiting than time", []idleInterval{interval(1, 0.5, 9)}, idleSums{1, 0.5, 0.5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j := newIdleJoin(1)
			for _, i := range tt.intervals {
				j.add(i)
			}
			if j.sums[0] != tt.want {
				t.Errorf("%+v, want %+v", j.sums[0], tt.want)
			}
		})
	}
}

// A wait longer than what is remembered covers that, and no more.
func TestIdleJoinForgets(t *testing.T) {
	j := newIdleJoin(1)
	for range 100 {
		j.add(interval(1, 1, 0))
	}
	j.add(interval(1, 1, 1000))
	if want := (idleSums{101, 101, idleHistory}); j.sums[0] != want {
		t.Errorf("%+v, want %+v", j.sums[0], want)
	}
}

func TestIdleJoinProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gpus = 3
		j := newIdleJoin(gpus)
		stalled, seconds := 0.0, 0.0
		for range rapid.IntRange(1, 100).Draw(t, "intervals") {
			now := newIdleInterval(gpus)
			now.seconds = rapid.Float64Range(0, 5).Draw(t, "seconds")
			now.stalled = rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 20)).Draw(t, "stalled")
			for g := range gpus {
				now.sampled[g] = now.seconds * rapid.Float64Range(0, 1).Draw(t, "sampled")
				now.idle[g] = now.sampled[g] * rapid.Float64Range(0, 1).Draw(t, "idle")
			}
			stalled, seconds = stalled+now.stalled, seconds+now.seconds
			before := append([]idleSums(nil), j.sums...)
			j.add(now)
			for g, s := range j.sums {
				const e = 1e-9
				if s.waited > s.idle+e || s.idle > s.sampled+e || s.sampled > seconds+e || s.waited > stalled+e {
					t.Fatalf("GPU %d: %+v after %v s, of which %v s waiting", g, s, seconds, stalled)
				}
				if s.sampled < before[g].sampled || s.idle < before[g].idle || s.waited < before[g].waited-e {
					t.Fatalf("GPU %d: %+v after %+v", g, s, before[g])
				}
			}
		}
	})
}

func TestBound(t *testing.T) {
	tests := []struct {
		sampled, idle, waited float64
		verdict, sentence     string
	}{
		{0, 0, 0, "", ""},
		{math.NaN(), 0, 0, "", ""},
		{412, 156.56, 48.5336, "I/O-bound", "GPUs idle 38 % of 412 s, 31 % of it waiting for data: I/O-bound"},
		{100, 10, 10, "I/O-bound", "GPUs idle 10 % of 100 s, 100 % of it waiting for data: I/O-bound"},
		{100, 9.9, 9.9, "compute-bound", "GPUs idle 10 % of 100 s, 100 % of it waiting for data: compute-bound"},
		{100, 0, 0, "compute-bound", "GPUs idle 0 % of 100 s, 0 % of it waiting for data: compute-bound"},
		{
			100, 10, 0, "bound by something else (CPU, communication)",
			"GPUs idle 10 % of 100 s, 0 % of it waiting for data: bound by something else (CPU, communication)",
		},
		{
			200, 100, 10, "bound by something else (CPU, communication)",
			"GPUs idle 50 % of 200 s, 10 % of it waiting for data: bound by something else (CPU, communication)",
		},
	}
	for _, tt := range tests {
		verdict, sentence := bound(tt.sampled, tt.idle, tt.waited)
		if verdict != tt.verdict || sentence != tt.sentence {
			t.Errorf("bound(%v, %v, %v) = %q, %q; want %q, %q", tt.sampled, tt.idle, tt.waited, verdict, sentence, tt.verdict, tt.sentence)
		}
	}
}

// event is a rank's "node" event with GPUs of so many seconds.
func event(rank int, sums ...idleSums) mpicache.RankStats {
	e := mpicache.RankStats{Rank: rank, Seconds: sums[0].sampled}
	for g, s := range sums {
		busy := 0.5
		e.Machine.GPUs = append(e.Machine.GPUs, mpicache.GPU{
			UUID: fmt.Sprintf("GPU-%d-%d", rank, g), Utilisation: &busy,
			SampledSeconds: s.sampled, IdleSeconds: s.idle, WaitedSeconds: s.waited,
		})
	}
	return e
}

func TestGPUSentence(t *testing.T) {
	unknown := mpicache.RankStats{Machine: mpicache.Machine{GPUs: []mpicache.GPU{{UUID: "MIG-1"}}}}
	tests := []struct {
		name   string
		events []mpicache.RankStats
		want   string
	}{
		{"nothing", nil, ""},
		{"no GPUs", []mpicache.RankStats{{Rank: 1}}, ""},
		{"no utilisation", []mpicache.RankStats{unknown}, "GPUs: their utilisation is not available (MIG, or no permission)"},
		{"before training", []mpicache.RankStats{event(0, idleSums{})}, ""},
		{
			"the newest event counts",
			[]mpicache.RankStats{event(0, idleSums{50, 50, 50}), event(0, idleSums{100, 60, 55})},
			"GPUs idle 60 % of 100 s, 92 % of it waiting for data: I/O-bound",
		},
		{
			"means over the GPUs that are sampled",
			[]mpicache.RankStats{event(0, idleSums{100, 60, 5}, idleSums{100, 40, 5}), event(1, idleSums{100, 50, 5}), unknown},
			"3 GPUs idle 50 % of 100 s, 10 % of it waiting for data: bound by something else (CPU, communication)",
		},
		{
			"a rank that was started again", // 100 and 20 s, 60 and 0 s, 30 and 0 s
			[]mpicache.RankStats{event(0, idleSums{100, 60, 30}), event(0, idleSums{10, 0, 0}), event(0, idleSums{20, 0, 0})},
			"GPUs idle 50 % of 120 s, 50 % of it waiting for data: I/O-bound",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var text bytes.Buffer
			for i, e := range tt.events {
				line, err := json.Marshal(struct {
					Event string    `json:"event"`
					Time  time.Time `json:"time"`
					mpicache.RankStats
				}{"node", time.Date(2026, 11, 20, 12, 0, i, 0, time.UTC), e})
				if err != nil {
					t.Fatal(err)
				}
				text.Write(append(line, '\n'))
			}
			log, err := parseLog(&text)
			if got := gpuSentence(log.run); err != nil || got != tt.want {
				t.Errorf("%q, %v, want %q", got, err, tt.want)
			}
		})
	}
}
