package storage

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A simulated storage delays each request by its latency, any number of them at a time, and then
// serves them over one line, whose bandwidth drops with every request beyond crowd. It runs in
// virtual time.
type simulated struct {
	latency   time.Duration
	bandwidth float64 // bytes a second
	crowd     int     // requests under way from which on it slows down; 0: never
	now       time.Time
	free      time.Time // of the line
	ends      endHeap
	random    *rand.Rand
}

type endHeap []struct{ began, ends time.Time }

func (h endHeap) Len() int           { return len(h) }
func (h endHeap) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }
func (h endHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *endHeap) Push(x any)        { *h = append(*h, x.(struct{ began, ends time.Time })) }
func (h *endHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

const simulatedBytes = 110 << 10

// run keeps c.limit requests under way for a time, and returns the bandwidth that they got.
func (s *simulated) run(c *concurrency, d time.Duration) float64 {
	until, begun := s.now.Add(d), s.now
	done := 0
	for s.now.Before(until) {
		for len(s.ends) < c.limit {
			s.begin()
		}
		end := heap.Pop(&s.ends).(struct{ began, ends time.Time })
		s.now = end.ends
		c.ended(s.now, end.ends.Sub(end.began), simulatedBytes, true)
		done++
	}
	return float64(done) * simulatedBytes / s.now.Sub(begun).Seconds()
}

func (s *simulated) begin() {
	bandwidth := s.bandwidth
	if s.crowd > 0 && len(s.ends) > s.crowd {
		bandwidth *= float64(s.crowd) / float64(len(s.ends))
	}
	noise := 0.8 + 0.4*s.random.Float64()
	ready := s.now.Add(time.Duration(noise * float64(s.latency)))
	if s.free.Before(ready) {
		s.free = ready
	}
	s.free = s.free.Add(time.Duration(simulatedBytes / bandwidth * 1e9))
	heap.Push(&s.ends, struct{ began, ends time.Time }{s.now, s.free})
}

func TestConcurrency(t *testing.T) {
	for _, c := range []struct {
		name        string
		storage     simulated
		least, most int     // of the limit, after a minute
		share       float64 // of the bandwidth
	}{
		{"latency only", simulated{latency: 20 * time.Millisecond, bandwidth: 100e9}, 256, 256, 0.01},
		{
			"some hundred are worth it",
			simulated{latency: 10 * time.Millisecond, bandwidth: 1e9},
			81, 182,
			0.85,
		},
		{"bandwidth is short", simulated{latency: 2 * time.Millisecond, bandwidth: 50e6}, 2, 24, 0.97},
		{
			"from 119 on more is less",
			simulated{latency: 20 * time.Millisecond, bandwidth: 2e9, crowd: 40},
			81, 182, 0.25,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.storage
			s.random, s.now = rand.New(rand.NewPCG(1, 2)), time.Unix(1e9, 0)
			limit := newConcurrency(DefaultFetchConcurrency, MaxFetchConcurrency, false)
			s.run(&limit, time.Minute)
			got := s.run(&limit, 10*time.Second)
			at := limit.limit
			if limit.kept > 0 {
				at = limit.kept
			}
			if at < c.least || at > c.most || got < c.share*s.bandwidth {
				t.Errorf(
					"limit %d with %.0f MB/s, want %d to %d with %.0f MB/s",
					at,
					got/1e6,
					c.least,
					c.most,
					c.share*s.bandwidth/1e6,
				)
			}
		})
	}
}

func TestFirstConcurrency(t *testing.T) {
	for _, c := range []struct{ samples, sampleBytes, want int }{
		{0, 0, 16},
		{1, 0, 16},
		{1000, 110 << 10, 16},
		{1000, 2 << 20, 16},
		{210, 4_581_270, 7},
		{1000, 8 << 20, 4},
		{168, 147 << 20, 4},
	} {
		if got := firstConcurrency(c.samples, int64(c.samples*c.sampleBytes)); got != c.want {
			t.Errorf("%d requests at first for %d bytes a sample, want %d", got, c.sampleBytes, c.want)
		}
	}
}

// TestConcurrencyBacksOff makes a storage lose nearly all its bandwidth when 256 requests are under
// way, and regain it. In between, 44 requests would be enough; at 133, the latency is three times
// that of quiet storage.
func TestConcurrencyBacksOff(t *testing.T) {
	s := simulated{
		latency: 50 * time.Millisecond, bandwidth: 100e9,
		random: rand.New(rand.NewPCG(3, 4)), now: time.Unix(1e9, 0),
	}
	c := newConcurrency(DefaultFetchConcurrency, MaxFetchConcurrency, false)
	s.run(&c, 30*time.Second)
	if c.limit != MaxFetchConcurrency {
		t.Fatalf("limit %d on storage without bounds", c.limit)
	}
	s.bandwidth = 100e6
	if got := s.run(&c, 5*time.Minute); c.limit > 150 || got < 0.95*s.bandwidth {
		t.Errorf("limit %d with %.0f MB/s on slow storage", c.limit, got/1e6)
	}
	s.bandwidth = 100e9
	if s.run(&c, 5*time.Minute); c.limit < 200 {
		t.Errorf("limit %d when storage was fast again", c.limit)
	}
}

// TestConcurrencyUnused checks that requests that do not wait for the limit do not change it.
func TestConcurrencyUnused(t *testing.T) {
	c := newConcurrency(16, 256, false)
	now := time.Unix(1e9, 0)
	for range 10_000 {
		now = now.Add(time.Millisecond)
		c.ended(now, time.Millisecond, 1, false)
	}
	if c.limit != 16 {
		t.Errorf("limit %d", c.limit)
	}
}

func TestAheadShare(t *testing.T) {
	for _, c := range []struct {
		limit       int
		waits       bool
		wantRequest int
	}{
		{1, false, 1},
		{7, false, 7},
		{8, false, 7},
		{16, false, 14},
		{256, false, 224},
		{1, true, 0},
		{16, true, 8},
	} {
		if got := aheadShare(c.limit, c.waits); got != c.wantRequest {
			t.Errorf("aheadShare(%d, %v) = %d, want %d", c.limit, c.waits, got, c.wantRequest)
		}
	}
}

// TestRateLimit makes random requests at random times: over every interval no more is read than the
// limit allows.
func TestRateLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate := rapid.Float64Range(1, 1e6).Draw(t, "rate")
		l := NewRateLimit(rate, rate/100)
		now := time.Unix(1e9, 0)
		var times []time.Time
		var taken []int64
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now = now.Add(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "pause")))
			n := rapid.Int64Range(0, 1e6).Draw(t, "bytes")
			if wait := l.Take(now, n, 1); wait > 0 {
				if l.Take(now.Add(wait-10), 0, 0) == 0 && l.Take(now.Add(wait-10), 0, 1) == 0 {
					t.Errorf("it says to wait %v, and need not", wait)
				}
				now = now.Add(wait)
				if more := l.Take(now, n, 1); more > 0 {
					t.Fatalf("after %v it says to wait %v more", wait, more)
				}
			}
			times, taken = append(times, now), append(taken, n)
		}
		for i := range times {
			bytes := int64(0)
			for j := i; j < len(times); j++ {
				bytes += taken[j]
				seconds := times[j].Sub(times[i]).Seconds()
				if most := rate*(seconds+burstSeconds) + float64(taken[j]) + 1; float64(bytes) > most {
					t.Errorf("%d bytes in %.2f s, at most %.0f are allowed", bytes, seconds, most)
				}
				if most := rate/100*(seconds+burstSeconds) + 1.01; float64(j-i+1) > most {
					t.Errorf("%d opens in %.2f s, at most %.2f are allowed", j-i+1, seconds, most)
				}
			}
		}
	})
	var none *RateLimit
	if none.Take(time.Time{}, 1e9, 1) != 0 || NewRateLimit(0, -1).Take(
		time.Unix(1, 0), 1<<60, 9) != 0 {
		t.Error("no limit is one")
	}
}

// TestCoalesce coalesces the read at place 5 among reads of one shard, written
// "from-to" or "from-to@need".
func TestCoalesce(t *testing.T) {
	for _, c := range []struct {
		name     string
		reads    []string
		demanded bool
		coalesce int64
		want     []string
	}{
		{"alone", []string{"5-9"}, false, 1 << 20, []string{"5-9"}},
		{
			"on both sides",
			[]string{"0-4", "5-9", "10-20"},
			false, 1 << 20,
			[]string{"0-4", "5-9", "10-20"},
		},
		{"too far", []string{"5-9", "70000-70001"}, false, 1 << 20, []string{"5-9"}},
		{
			"just near enough",
			[]string{"5-9", "65545-65546"},
			false, 1 << 20,
			[]string{"5-9", "65545-65546"},
		},
		{"too many bytes", []string{"0-4", "5-9", "10-20", "21-25"}, false, 15, []string{"5-9", "10-20"}},
		{"overlapping", []string{"5-9", "8-12", "13-20"}, false, 1 << 20, []string{"5-9"}},
		{"never", []string{"0-4", "5-9", "10-20"}, false, -1, []string{"5-9"}},
		{
			"less urgent",
			[]string{"0-4@8", "5-9@7", "10-20@7", "21-22@8"},
			true, 1 << 20,
			[]string{"5-9@7", "10-20@7"},
		},
		{
			"ahead",
			[]string{"0-4@8", "5-9@7", "10-20@7"},
			false, 1 << 20,
			[]string{"0-4@8", "5-9@7", "10-20@7"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, names := newQueues(), map[*read]string{}
			var leader *read
			for i, text := range c.reads {
				r := &read{seq: uint64(i), target: q.target(-1), shard: q.join("s")}
				if n, _ := fmt.Sscanf(text, "%d-%d@%d", &r.from, &r.to, &r.need); n < 2 {
					t.Fatalf("%q", text)
				}
				q.push(r)
				if names[r] = text; r.from == 5 {
					leader = r
				}
			}
			var got []string
			for _, r := range coalesce(leader, c.demanded, c.coalesce) {
				got = append(got, names[r])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			leader.tries = 1
			if alone := coalesce(leader, c.demanded, c.coalesce); len(alone) != 1 {
				t.Errorf("a read that failed has %d companions", len(alone)-1)
			}
		})
	}
}

func TestOpenFiles(t *testing.T) {
	files, start := openFiles{}, time.Unix(1e9, 0)
	at := func(i int) *shard { return &shard{path: fmt.Sprint(i)} }
	first, opens := files.take(at(0), start)
	if again, twice := files.take(at(0), start); !opens || twice || again != first {
		t.Fatal("two requests do not share a file")
	}
	if files.leave(at(0), first, false) != nil {
		t.Error("a file in use is closed")
	}
	for i := 1; i <= maxOpenFiles+1; i++ { // the first is the oldest, and in use
		file, _ := files.take(at(i), start.Add(time.Duration(i)))
		old := files.leave(at(i), file, false)
		if (old != nil) != (i >= maxOpenFiles) {
			t.Errorf("after %d files one is closed: %v", i, old)
		}
	}
	if files["0"] != first || files["1"] != nil || files["2"] != nil || files["3"] == nil {
		t.Error("others than the two that were not used for longest are closed")
	}
	other, _ := files.take(at(0), start)
	if files.leave(at(0), first, true) != nil || files["0"] != nil {
		t.Error("a broken file is closed while it is read, or used again")
	}
	if files.leave(at(0), other, false) != first {
		t.Error("its last user does not close a broken file")
	}
	if alone, opens := files.take(nil, start); !opens || files.leave(nil, alone, false) != alone {
		t.Error("a file of one sample is shared")
	}
}
