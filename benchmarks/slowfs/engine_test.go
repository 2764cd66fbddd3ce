package slowfs

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

func wantVerdict(t *testing.T, what string, got Verdict, due time.Duration, errno syscall.Errno) {
	t.Helper()
	if got.Due != due || got.Err != errno {
		t.Errorf("%s: due %v, error %v; want %v, %v", what, got.Due, got.Err, due, errno)
	}
}

func TestLatencies(t *testing.T) {
	e := NewEngine(Config{
		OpenLatency: 2 * ms, ReadLatency: 3 * ms, EntryLatency: ms,
		StatLatency: 5 * ms,
	})
	wantVerdict(t, "open", e.Open(10*ms, "a"), 12*ms, 0)
	wantVerdict(t, "open beside it", e.Open(10*ms, "b"), 12*ms, 0)
	wantVerdict(t, "read", e.Read(10*ms, "a", 0, 1<<20), 13*ms, 0)
	wantVerdict(t, "read of nothing", e.Read(10*ms, "a", 1<<20, 0), 10*ms, 0)
	wantVerdict(t, "list of 7 entries", e.List(10*ms, "", 7), 17*ms, 0)
	wantVerdict(t, "stat", e.Stat(10*ms, "a"), 15*ms, 0)
}

func TestOpenRate(t *testing.T) {
	e := NewEngine(Config{OpenRate: 100, OpenLatency: 2 * ms})
	wantVerdict(t, "first", e.Open(0, "a"), 12*ms, 0)
	wantVerdict(t, "second", e.Open(0, "b"), 22*ms, 0)
	wantVerdict(t, "after a pause, which saves nothing up", e.Open(100*ms, "c"), 112*ms, 0)
	wantVerdict(t, "after that", e.Open(101*ms, "d"), 122*ms, 0)
}

func TestBandwidthOfTheWhole(t *testing.T) {
	e := NewEngine(Config{Bandwidth: 1e6, Targets: 4, ReadLatency: ms})
	for i := range 5 {
		due := time.Duration(i+1)*10*ms + ms
		wantVerdict(t, fmt.Sprint("read ", i), e.Read(0, fmt.Sprint(i), 0, 10_000), due, 0)
	}
}

func TestBandwidthOfEachTarget(t *testing.T) {
	e := NewEngine(Config{TargetBandwidth: 1e6, Targets: 2})
	var names [2][]string
	for i := range 100 {
		name := fmt.Sprintf("%d.bin", i)
		names[e.Target(name, 0)] = append(names[e.Target(name, 0)], name)
	}
	if len(names[0]) < 30 || len(names[1]) < 30 {
		t.Fatalf("100 files lie %d and %d on two targets", len(names[0]), len(names[1]))
	}
	wantVerdict(t, "target 0", e.Read(0, names[0][0], 0, 1000), ms, 0)
	wantVerdict(t, "target 1 beside it", e.Read(0, names[1][0], 0, 1000), ms, 0)
	wantVerdict(t, "target 0 again", e.Read(0, names[0][1], 0, 1000), 2*ms, 0)
	if got := e.Stats().TargetBytes; !slices.Equal(got, []int64{2000, 1000}) {
		t.Errorf("bytes by target: %v", got)
	}
}

func TestTheSlowerOfTargetAndWholeCounts(t *testing.T) {
	e := NewEngine(Config{Bandwidth: 3e6, TargetBandwidth: 1e6, Targets: 2, Stripe: 1000})
	// 3000 bytes from stripe 0 on: 2000 on one target, 1000 on the other.
	wantVerdict(t, "bound by the target", e.Read(0, "a", 0, 3000), 2*ms, 0)
	e = NewEngine(Config{Bandwidth: 1e6, TargetBandwidth: 1e6, Targets: 2, Stripe: 1000})
	wantVerdict(t, "bound by the whole", e.Read(0, "a", 0, 3000), 3*ms, 0)
}

func TestStripesGoRoundTheTargets(t *testing.T) {
	e := NewEngine(Config{Targets: 3, Stripe: 100})
	first := e.Target("a", 0)
	for i := range int64(10) {
		if got, want := e.Target("a", i*100+99), (first+int(i))%3; got != want {
			t.Errorf("stripe %d lies on target %d, want %d", i, got, want)
		}
	}
	// Bytes 50 to 450: stripes 0 to 4, of 50, 100, 100, 100 and 50 bytes.
	want := make([]int64, 3)
	want[first], want[(first+1)%3], want[(first+2)%3] = 150, 150, 100
	e.Read(0, "a", 50, 400)
	if got := e.Stats().TargetBytes; !slices.Equal(got, want) {
		t.Errorf("bytes by target %v, want %v", got, want)
	}
}

func TestRules(t *testing.T) {
	read := func(e *Engine, path string) syscall.Errno { return e.Read(0, path, 0, 1).Err }
	for _, test := range []struct {
		name string
		rule Rule
		do   func(*Engine) syscall.Errno
		want string // the accesses' results: x failed, . not
	}{
		{"all", Rule{Error: "EIO"}, func(e *Engine) syscall.Errno { return read(e, "a") }, "xxxx"},
		{
			"nth and all that follow",
			Rule{Error: "EIO", Nth: 3},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "..xx",
		},
		{
			"the first so many",
			Rule{Error: "EIO", Times: 2},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "xx..",
		},
		{
			"only the nth",
			Rule{Error: "EIO", Nth: 2, Times: 1},
			func(e *Engine) syscall.Errno { return read(e, "a") }, ".x..",
		},
		{
			"op that is",
			Rule{Error: "EIO", Op: Read},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "xxxx",
		},
		{
			"op that is not",
			Rule{Error: "EIO", Op: Open},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "....",
		},
		{"open", Rule{Error: "EIO", Op: Open}, func(e *Engine) syscall.Errno {
			return e.Open(0, "a").Err
		}, "xxxx"},
		{"list", Rule{Error: "EIO", Op: List}, func(e *Engine) syscall.Errno {
			return e.List(0, "a", 1).Err
		}, "xxxx"},
		{"stat", Rule{Error: "EIO", Op: Stat}, func(e *Engine) syscall.Errno {
			return e.Stat(0, "a").Err
		}, "xxxx"},
		{
			"glob of the last name",
			Rule{Error: "EIO", Match: "*.bin"},
			func(e *Engine) syscall.Errno { return read(e, "x/y.bin") }, "xxxx",
		},
		{
			"glob of another last name",
			Rule{Error: "EIO", Match: "*.bin"},
			func(e *Engine) syscall.Errno { return read(e, "x/y.tar") }, "....",
		},
		{
			"glob of the path",
			Rule{Error: "EIO", Match: "x/*"},
			func(e *Engine) syscall.Errno { return read(e, "x/y") }, "xxxx",
		},
		{
			"glob of another path",
			Rule{Error: "EIO", Match: "x/*"},
			func(e *Engine) syscall.Errno { return read(e, "z/y") }, "....",
		},
		{
			"target",
			Rule{Error: "EIO", Targets: []int{0}},
			func(e *Engine) syscall.Errno { return read(e, nameOn(e, 0)) }, "xxxx",
		},
		{
			"another target",
			Rule{Error: "EIO", Targets: []int{0}},
			func(e *Engine) syscall.Errno { return read(e, nameOn(e, 1)) }, "....",
		},
		{
			"an open has no target",
			Rule{Error: "EIO", Targets: []int{0, 1}},
			func(e *Engine) syscall.Errno { return e.Open(0, "a").Err }, "....",
		},
		{
			"never by chance",
			Rule{Error: "EIO", Probability: 1e-300},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "....",
		},
		{
			"always by chance",
			Rule{Error: "EIO", Probability: 1},
			func(e *Engine) syscall.Errno { return read(e, "a") }, "xxxx",
		},
	} {
		e := NewEngine(Config{Targets: 2, Rules: []Rule{test.rule}})
		var got strings.Builder
		for range 4 {
			got.WriteByte(map[bool]byte{true: 'x', false: '.'}[test.do(e) == syscall.EIO])
		}
		if got.String() != test.want {
			t.Errorf("%s: %s, want %s", test.name, got.String(), test.want)
		}
	}
}

// nameOn returns the name of a file that lies on a target.
func nameOn(e *Engine, target int) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint(i); e.Target(name, 0) == target {
			return name
		}
	}
}

func TestRulesOfTime(t *testing.T) {
	e := NewEngine(Config{ReadLatency: ms, Rules: []Rule{
		{After: 10 * ms, During: 10 * ms, Error: "ESTALE"},
		{After: 30 * ms, Stall: time.Second},
	}})
	for now, want := range map[time.Duration]Verdict{
		9 * ms: {10 * ms, 0}, 10 * ms: {11 * ms, syscall.ESTALE}, 19 * ms: {20 * ms, syscall.ESTALE},
		20 * ms: {21 * ms, 0},
		29 * ms: {30 * ms, 0}, 30 * ms: {1031 * ms, 0},
	} {
		wantVerdict(t, fmt.Sprint("at ", now), e.Read(now, "a", 0, 1), want.Due, want.Err)
	}
}

func TestAllRulesThatMatchApply(t *testing.T) {
	e := NewEngine(Config{Rules: []Rule{
		{Stall: 2 * ms}, {Stall: 3 * ms, Error: "ENOENT"}, {Error: "EIO"},
	}})
	wantVerdict(t, "open", e.Open(0, "a"), 5*ms, syscall.ENOENT)
	if s := e.Stats(); s.Stalls != 2 || s.Errors != 1 {
		t.Errorf("%d stalls and %d errors, want 2 and 1", s.Stalls, s.Errors)
	}
}

func TestFilesAreCountedEachForItself(t *testing.T) {
	e := NewEngine(Config{Rules: []Rule{{Error: "EIO", Times: 1}}})
	for _, path := range []string{"a", "b"} {
		if first, second := e.Open(0, path).Err, e.Open(0, path).Err; first != syscall.EIO ||
			second != 0 {
			t.Errorf("%s: %v, %v", path, first, second)
		}
	}
}

func TestAReadThatFailsTakesNoBandwidth(t *testing.T) {
	e := NewEngine(Config{Bandwidth: 1e6, Rules: []Rule{{Match: "a", Error: "EIO"}}})
	wantVerdict(t, "failed", e.Read(0, "a", 0, 1000), 0, syscall.EIO)
	wantVerdict(t, "next", e.Read(0, "b", 0, 1000), ms, 0)
	want := map[string]FileStats{"a": {Reads: 1}, "b": {Reads: 1, Bytes: 1000}}
	if got := e.Stats().Files; !reflect.DeepEqual(got, want) {
		t.Errorf("files %+v, want %+v", got, want)
	}
}

// TestChanceDependsOnSeedAndAccessOnly makes accesses in two orders, and with two seeds.
func TestChanceDependsOnSeedAndAccessOnly(t *testing.T) {
	const files, times = 40, 25
	failures := func(seed uint64, each func(do func(file, time int))) (
		failed [files][times]bool, n int,
	) {
		e := NewEngine(Config{Seed: seed, Rules: []Rule{{Probability: 0.3, Error: "EIO"}}})
		each(func(file, time int) {
			if e.Open(0, fmt.Sprint(file)).Err != 0 {
				failed[file][time] = true
				n++
			}
		})
		return failed, n
	}
	byFile := func(do func(file, time int)) {
		for f := range files {
			for i := range times {
				do(f, i)
			}
		}
	}
	byTime := func(do func(file, time int)) {
		for i := range times {
			for f := range files {
				do(files-1-f, i)
			}
		}
	}
	one, n := failures(1, byFile)
	if other, _ := failures(1, byTime); one != other {
		t.Error("another order has other failures")
	}
	if other, _ := failures(2, byFile); one == other {
		t.Error("another seed has the same failures")
	}
	if n < 240 || n > 360 { // 300 expected; the deviation is 14.5
		t.Errorf("%d of 1000 failed with probability 0.3", n)
	}
}

func TestReadTwice(t *testing.T) {
	e := NewEngine(Config{})
	for _, path := range []string{"once", "twice"} {
		e.Read(0, path, 0, 100)
		e.Read(0, path, 100, 100)
	}
	e.Read(0, "twice", 150, 100)
	s := e.Stats()
	if got := s.ReadTwice(); !slices.Equal(got, []string{"twice"}) || s.Twice != 50 ||
		s.Files["twice"].Twice != 50 {
		t.Errorf("read twice: %q, %d bytes, of it %d of the file", got, s.Twice, s.Files["twice"].Twice)
	}
}

func TestTimesOfReads(t *testing.T) {
	e := NewEngine(Config{ReadLatency: 2 * ms})
	e.Read(5*ms, "a", 0, 1)
	e.Read(7*ms, "a", 1, 1)
	if s := e.Stats(); s.FirstRead != 5*ms || s.LastRead != 9*ms {
		t.Errorf("first %v, last %v, want 5ms and 9ms", s.FirstRead, s.LastRead)
	}
	e.ResetStats()
	e.Read(20*ms, "b", 0, 1)
	if s := e.Stats(); s.FirstRead != 20*ms || s.LastRead != 22*ms || s.Bytes != 1 ||
		len(s.Files) != 1 {
		t.Errorf("after ResetStats: %+v", s)
	}
}

func TestStatsAreACopy(t *testing.T) {
	e := NewEngine(Config{})
	e.Read(0, "a", 0, 1)
	s := e.Stats()
	e.Read(0, "a", 1, 1)
	if s.Files["a"].Bytes != 1 || s.TargetBytes[0] != 1 {
		t.Errorf("a copy has changed: %+v", s)
	}
}

// TestSpans compares a set of bytes with a map.
func TestSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s spans
		have := make(map[int64]bool)
		for range rapid.IntRange(1, 30).Draw(t, "adds") {
			begin := rapid.Int64Range(0, 60).Draw(t, "begin")
			end := begin + rapid.Int64Range(1, 20).Draw(t, "size")
			known := int64(0)
			for b := begin; b < end; b++ {
				if have[b] {
					known++
				}
				have[b] = true
			}
			if got := s.add(begin, end); got != known {
				t.Fatalf("adding [%d, %d) says %d bytes were known, want %d", begin, end, got, known)
			}
			total := int64(0)
			for i, piece := range s {
				total += piece.end - piece.begin
				if piece.begin >= piece.end || i > 0 && piece.begin <= s[i-1].end {
					t.Fatalf("not in order or not merged: %v", s)
				}
			}
			if total != int64(len(have)) {
				t.Fatalf("%v has %d bytes, want %d", s, total, len(have))
			}
		}
	})
}

// TestBandwidthIsNeverExceeded reads at random times and compares with what could have flowed since
// a read was requested.
func TestBandwidthIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		targets := rapid.IntRange(1, 4).Draw(t, "targets")
		e := NewEngine(Config{
			Bandwidth: 2e6, TargetBandwidth: 1e6, Targets: targets,
			Stripe: Bytes(rapid.SampledFrom([]int{0, 700}).Draw(t, "stripe")),
		})
		now, sum, due := time.Duration(0), int64(0), time.Duration(0)
		for range rapid.IntRange(1, 30).Draw(t, "reads") {
			now += time.Duration(rapid.IntRange(0, 1000).Draw(t, "pause")) * time.Microsecond
			size := rapid.Int64Range(1, 5000).Draw(t, "size")
			sum += size
			v := e.Read(now, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "file"), 0, size)
			due = max(due, v.Due)
			if v.Due < now+time.Duration(size)*time.Second/2e6-time.Microsecond {
				t.Fatalf("%d bytes at %v came at %v", size, now, v.Due)
			}
		}
		if least := time.Duration(sum) * time.Second / 2e6; due < least-time.Microsecond {
			t.Fatalf("%d bytes came in %v, want at least %v", sum, due, least)
		}
		for target, n := range e.Stats().TargetBytes {
			if least := time.Duration(n) * time.Second / 1e6; due < least-time.Microsecond {
				t.Fatalf("target %d gave %d bytes in %v, want at least %v", target, n, due, least)
			}
		}
	})
}

func TestNewEngineRefusesNonsense(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	NewEngine(Config{Targets: -1})
}
