package rank

import (
	"testing"

	"pgregory.net/rapid"
)

// interval returns an interval of a single GPU that was sampled throughout.
func interval(seconds, idle, stalled float64) idleInterval {
	return idleInterval{
		seconds: seconds, stalled: stalled, sampled: []float64{seconds},
		idle: []float64{idle},
	}
}

func TestIdleJoin(t *testing.T) {
	tests := []struct {
		name      string
		intervals []idleInterval
		want      idleSums
	}{
		{
			"busy and never waiting",
			[]idleInterval{interval(1, 0, 0), interval(1, 0, 0)},
			idleSums{2, 0, 0},
		},
		{"idle while waiting", []idleInterval{interval(1, 0.6, 0.4)}, idleSums{1, 0.6, 0.4}},
		{
			"waiting behind work that was queued",
			[]idleInterval{interval(1, 0.1, 0.4)},
			idleSums{1, 0.1, 0.1},
		},
		{
			"idle and not waiting in another second",
			[]idleInterval{interval(1, 0, 0.5), interval(1, 0.5, 0)},
			idleSums{2, 0.5, 0},
		},
		{
			// 2.5 s become known in the third second: all of it, all of the second, and half a
			// second of the first.
			"a long wait, known at its end",
			[]idleInterval{interval(1, 0.25, 0), interval(1, 1, 0), interval(1, 0.75, 2.5)},
			idleSums{3, 2, 2},
		},
		{
			// The first second has 0.5 s left for the 1.5 s of the second: its idle time of 0.75 s
			// is covered to the end.
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

// A wait longer than what is remembered covers all of that, and no more.
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
				if s.waited > s.idle+e || s.idle > s.sampled+e || s.sampled > seconds+e ||
					s.waited > stalled+e {
					t.Fatalf("GPU %d: %+v after %v s, of which %v s waiting", g, s, seconds,
						stalled)
				}
				if s.sampled < before[g].sampled || s.idle < before[g].idle ||
					s.waited < before[g].waited-e {
					t.Fatalf("GPU %d: %+v after %+v", g, s, before[g])
				}
			}
		}
	})
}
