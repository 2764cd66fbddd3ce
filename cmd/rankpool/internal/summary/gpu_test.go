package summary

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"rankpool/mpicache/stats"
)

func TestBound(t *testing.T) {
	tests := []struct {
		sampled, idle, waited float64
		verdict, sentence     string
	}{
		{0, 0, 0, "", ""},
		{math.NaN(), 0, 0, "", ""},
		{
			100, 50, math.NaN(), "",
			"GPUs idle 50 % of 100 s; how long training waited for data was not measured",
		},
		{
			100, 5, math.NaN(), "compute-bound",
			"GPUs idle 5 % of 100 s; how long training waited for data was not measured: compute-bound",
		},
		{
			412, 156.56, 48.5336, "I/O-bound",
			"GPUs idle 38 % of 412 s, 31 % of it waiting for data: I/O-bound",
		},
		{100, 10, 10, "I/O-bound", "GPUs idle 10 % of 100 s, 100 % of it waiting for data: I/O-bound"},
		{
			100, 9.9, 9.9, "compute-bound",
			"GPUs idle 10 % of 100 s, 100 % of it waiting for data: compute-bound",
		},
		{100, 0, 0, "compute-bound", "GPUs idle 0 % of 100 s, 0 % of it waiting for data: compute-bound"},
		{
			100, 10, 0, "bound by something else (CPU, communication)",
			"GPUs idle 10 % of 100 s, 0 % of it waiting for data: bound by something else (CPU, " +
				"communication)",
		},
		{
			200, 100, 10, "bound by something else (CPU, communication)",
			"GPUs idle 50 % of 200 s, 10 % of it waiting for data: bound by something else (CPU, " +
				"communication)",
		},
	}
	for _, tt := range tests {
		verdict, sentence := Bound(tt.sampled, tt.idle, tt.waited)
		if verdict != tt.verdict || sentence != tt.sentence {
			t.Errorf("bound(%v, %v, %v) = %q, %q; want %q, %q", tt.sampled, tt.idle, tt.waited,
				verdict, sentence, tt.verdict, tt.sentence)
		}
	}
}

// event returns a rank's "node" event with GPUs of these seconds.
func event(rank int, sums ...gpuSeconds) stats.Reading {
	e := stats.Reading{Rank: rank, Seconds: sums[0].sampled}
	for g, s := range sums {
		busy := 0.5
		e.Machine.GPUs = append(e.Machine.GPUs, stats.GPU{
			UUID: fmt.Sprintf("GPU-%d-%d", rank, g), Utilisation: &busy,
			SampledSeconds: s.sampled, IdleSeconds: s.idle, WaitedSeconds: stats.Measured(s.waited),
		})
	}
	return e
}

func TestGPUSentence(t *testing.T) {
	unknown := stats.Reading{Machine: stats.Machine{GPUs: []stats.GPU{{UUID: "MIG-1"}}}}
	tests := []struct {
		name   string
		events []stats.Reading
		want   string
	}{
		{"nothing", nil, ""},
		{"no GPUs", []stats.Reading{{Rank: 1}}, ""},
		{
			"no utilisation",
			[]stats.Reading{unknown},
			"GPUs: their utilisation is not available (MIG, or no permission)",
		},
		{"before training", []stats.Reading{event(0, gpuSeconds{})}, ""},
		{
			"the newest event counts",
			[]stats.Reading{
				event(0, gpuSeconds{50, 50, 50}),
				event(0, gpuSeconds{100, 60, 55}),
			},
			"GPUs idle 60 % of 100 s, 92 % of it waiting for data: I/O-bound",
		},
		{
			"means over the GPUs that are sampled",
			[]stats.Reading{
				event(0, gpuSeconds{100, 60, 5}, gpuSeconds{100, 40, 5}),
				event(1, gpuSeconds{100, 50, 5}), unknown,
			},
			"3 GPUs idle 50 % of 100 s, 10 % of it waiting for data: bound by something else " +
				"(CPU, communication)",
		},
		{
			"a rank that was restarted", // 100 and 20 s, 60 and 0 s, 30 and 0 s
			[]stats.Reading{
				event(0, gpuSeconds{100, 60, 30}), event(0, gpuSeconds{10, 0, 0}),
				event(0, gpuSeconds{20, 0, 0}),
			},
			"GPUs idle 50 % of 120 s, 50 % of it waiting for data: I/O-bound",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var text bytes.Buffer
			for i, e := range tt.events {
				e.Event, e.Time = "node", time.Date(2026, 11, 20, 12, 0, i, 0, time.UTC)
				line, err := json.Marshal(e)
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

// gpuSeconds are the seconds in which a GPU was sampled, was idle, and was idle while training
// waited for data.
type gpuSeconds struct{ sampled, idle, waited float64 }
