package liveness

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const bound = 2 * time.Minute

// A world is a Watch in virtual time, over peers that show signs of life as the scene says.
type world struct {
	*Watch
	now  time.Duration
	lost []string // who, and when
}

// pass lets time pass in which those who live show a sign of life every Every(bound).
func (w *world) pass(d time.Duration, live ...int) {
	for end := w.now + d; w.now < end; {
		w.now += min(Every(bound), end-w.now)
		for _, peer := range live {
			w.Heard(peer)
		}
		for _, peer := range w.Tick(w.now) {
			w.lost = append(w.lost, fmt.Sprint(peer, " at ", w.now))
		}
	}
}

// stop lets time pass in which this process is stopped.
func (w *world) stop(d time.Duration) { w.now += d }

func TestWatch(t *testing.T) {
	for name, c := range map[string]struct {
		scene func(w *world)
		want  string
	}{
		"all live": {func(w *world) { w.pass(time.Hour, 0, 1, 2) }, ""},
		"one is silent for good": {func(w *world) {
			w.pass(time.Minute, 0, 1, 2)
			w.pass(time.Hour, 0, 2)
		}, "1 at 3m0s"},
		"all are silent for good": {
			func(w *world) { w.pass(time.Hour) },
			"0 at 2m0s, 1 at 2m0s, 2 at 2m0s",
		},
		"one is stopped for 90 s": {func(w *world) {
			for range 10 {
				w.pass(90*time.Second, 0, 2)
				w.pass(time.Second, 0, 1, 2)
			}
		}, ""},
		"the whole job is suspended for an hour": {func(w *world) {
			w.pass(time.Minute, 0, 1, 2)
			w.stop(time.Hour)
			w.pass(time.Minute, 0, 1, 2)
		}, ""},
		"suspended repeatedly, and one hangs": {func(w *world) {
			w.pass(time.Minute, 0, 1, 2)
			for range 5 {
				w.stop(time.Hour)
				w.pass(25*time.Second, 0, 2)
			}
		}, "1 at 5h2m55s"}, // 4 × 25 s + 15 s, and a second for each of the five stops
		"those resumed later than this one": {func(w *world) {
			w.pass(time.Minute, 0, 1, 2)
			w.stop(time.Hour)
			w.pass(100 * time.Second)
			w.pass(time.Minute, 0, 1, 2)
		}, ""},
		"the clock goes back, and on": {func(w *world) {
			w.pass(time.Minute, 0, 1, 2)
			w.now -= time.Hour
			w.pass(time.Hour, 0, 1)
			w.now += 100 * time.Hour
			w.pass(time.Minute, 0, 1, 2)
		}, ""},
		"lost, heard of again, lost again": {func(w *world) {
			w.pass(3*time.Minute, 0, 2)
			w.pass(time.Second, 0, 1, 2)
			w.pass(3*time.Minute, 0, 2)
		}, "1 at 2m0s, 1 at 5m1s"},
	} {
		w := &world{Watch: NewWatch(3, bound)}
		w.Tick(0)
		c.scene(w)
		if got := strings.Join(w.lost, ", "); got != c.want {
			t.Errorf("%s: lost %q, want %q", name, got, c.want)
		}
	}
}

// TestWatchIsFair checks that, whatever stops this process and for how long, a peer that is heard
// from within the bound while it runs is never lost, and that one that is not always is.
func TestWatchIsFair(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{Watch: NewWatch(2, bound)}
		w.Tick(0)
		silent := time.Duration(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "stopped") {
				w.stop(time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "for")))
				silent += 2 * Every(bound) // the most that counts
			}
			d := time.Duration(rapid.Int64Range(1, int64(30*time.Second)).Draw(t, "running"))
			if silent += d; silent >= bound {
				w.pass(time.Millisecond, 0)
				silent = d + time.Millisecond
			}
			w.pass(d)
		}
		for _, lost := range w.lost {
			if strings.HasPrefix(lost, "0") {
				t.Fatalf("a peer that shows signs of life is lost: %v", w.lost)
			}
		}
		w.pass(bound + 2*Every(bound))
		if !w.Lost(1) {
			t.Fatal("a silent peer is not lost")
		}
	})
}

func TestEvery(t *testing.T) {
	for bound, want := range map[time.Duration]time.Duration{
		time.Millisecond: 10 * time.Millisecond, time.Second: time.Second / 24,
		2 * time.Minute: time.Second, 24 * time.Hour: time.Second,
	} {
		if got := Every(bound); got != want {
			t.Errorf("Every(%v) = %v, want %v", bound, got, want)
		}
	}
}
