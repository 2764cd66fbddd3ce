package doctor

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/slurm"
)

// TestGroup connects four ranks: two on one node, one with a clock that is 2 s late.
func TestGroup(t *testing.T) {
	const n = 4
	hosts := []string{"n1", "n2", "n3", "n3"}
	own := func(r int) []Finding {
		found := good("{} free", bytesOf(int64(r+1)<<30))
		found[0].Check, found[0].Facts = "memory", map[string]string{
			"rankpool": "1.0", "PyTorch": []string{"2.4", "2.4", "2.4", "2.5"}[r],
		}
		return found
	}
	groups := make([]*Group, n)
	for r, transport := range transport.NewLocal(n) {
		opt := GroupOptions{Host: hosts[r], Tick: make(chan time.Time)} // no rank is silent
		if r == 2 {
			opt.Now = func() time.Time { return time.Now().Add(-2 * time.Second) }
		}
		groups[r] = Join(transport, opt)
		defer transport.Close()
		defer groups[r].Close()
	}
	var others sync.WaitGroup
	for r := 1; r < n; r++ {
		others.Go(func() {
			groups[r].Report(own(r))
			if err := groups[r].AwaitEnd(t.Context()); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
		})
	}
	reports, lost, err := groups[0].Gather(t.Context(), own(0))
	if err != nil || len(lost) > 0 || len(reports) != n {
		t.Fatal(reports, lost, err)
	}
	for r, report := range reports {
		if want := (Report{r, hosts[r], own(r)}); !reflect.DeepEqual(report, want) {
			t.Errorf("rank %d reported %+v, want %+v", r, report, want)
		}
	}
	world := World{Job: slurm.Job{Nodes: 3}, Reports: reports, Offsets: groups[0].Clocks(t.Context())}
	world.Ways = groups[0].Measure(t.Context(), func(int, int) {})
	groups[0].End()
	others.Wait()
	if late := world.Offsets[2]; late.Rank != 2 || (late.Offset+2*time.Second).Abs() > late.Error {
		t.Errorf("the clock that is 2 s late: %+v", late)
	}
	checkWays(t, world.Ways, n)
	found := world.Findings(Checks())
	for _, want := range []struct {
		check  string
		status Status
		detail string
	}{
		{"ranks", Warning, "several ranks share a node: n3"},
		{"clock", Bad, "clocks are up to {} apart: n3"},
		{"versions", Warning, "PyTorch is not the same everywhere: 2.4 on n[1-3]; 2.5 on n3"},
		{"ping", "", "between nodes"},
		{"ping", "", "inside nodes"},
		{"bandwidth", "", "inside nodes"},
	} {
		if !slices.ContainsFunc(found, func(f Finding) bool {
			return f.Check == want.check && (want.status == "" || f.Status == want.status) &&
				strings.Contains(f.Detail, want.detail)
		}) {
			t.Errorf("no %+v in %+v", want, found)
		}
	}
}

func checkWays(t *testing.T, ways []Way, n int) {
	t.Helper()
	met := map[int]int{}
	for _, way := range ways {
		if way.Failure != "" || way.Ping <= 0 || way.Bandwidth <= 0 {
			t.Errorf("%+v", way)
		}
		met[way.From]++
		met[way.To]++
	}
	for r := range n {
		if met[r] < 2 {
			t.Errorf("rank %d has %d ways", r, met[r])
		}
	}
}

// TestLostRank checks that a rank that reports its host once and then is silent counts as lost, and
// that the others' findings make the list.
func TestLostRank(t *testing.T) {
	transports := transport.NewLocal(3)
	ticks := make(chan time.Time)
	root := Join(transports[0], GroupOptions{Host: "n1", Tick: ticks, Late: never})
	defer root.Close()
	second := Join(transports[1], GroupOptions{Host: "n2", Tick: make(chan time.Time), Late: never})
	defer second.Close()
	second.Report(nil)
	ranks.NewMux(transports[2]).Send(0, channelSigns, []byte("n3\npython"))
	// Ticks overtake messages.
	if err := root.await(t.Context(), func() (bool, error) {
		return root.peers[1].report != nil && root.peers[2].host == "n3", nil
	}); err != nil {
		t.Fatal(err)
	}
	type gathered struct {
		reports []Report
		lost    []Lost
		err     error
	}
	done := make(chan gathered)
	go func() {
		reports, lost, err := root.Gather(t.Context(), nil)
		done <- gathered{reports, lost, err}
	}()
	var got gathered
	for ended := false; !ended; {
		select {
		case ticks <- time.Time{}:
		case got = <-done:
			ended = true
		}
	}
	if got.err != nil || len(got.reports) != 2 ||
		!reflect.DeepEqual(got.lost, []Lost{{2, "n3", "python"}}) {
		t.Fatalf("%+v", got)
	}
	ways := root.Measure(t.Context(), func(int, int) {})
	if len(ways) != 1 || ways[0].From != 0 || ways[0].To != 1 || ways[0].Failure != "" {
		t.Errorf("measured %+v", ways)
	}
	found := checkRanks(World{Reports: got.reports, Lost: got.lost})
	if len(found) != 1 || found[0].Status != Bad ||
		!strings.Contains(found[0].Detail,
			`rank 2 on n3 has not reported, and does not respond; its last check was "python"`) {
		t.Errorf("%+v", found)
	}
}

// TestSilentRootEndsAssist checks that a rank does not wait forever for rank 0.
func TestSilentRootEndsAssist(t *testing.T) {
	transports := transport.NewLocal(2)
	ticks := make(chan time.Time)
	g := Join(transports[1], GroupOptions{Tick: ticks})
	defer g.Close()
	done := make(chan error)
	go func() { done <- g.AwaitEnd(t.Context()) }()
	for {
		select {
		case ticks <- time.Time{}:
			continue
		case err := <-done:
			if !errors.Is(err, ErrSilent) {
				t.Fatal(err)
			}
		}
		return
	}
}

// TestSilentWay checks that a way fails, and does not wait forever, if the peer does not answer a
// ping.
func TestSilentWay(t *testing.T) {
	transports := transport.NewLocal(2)
	root := Join(transports[0], GroupOptions{
		Host: "n1", Tick: make(chan time.Time),
		Late: func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		},
	})
	defer root.Close()
	// it receives messages, and answers none
	ranks.NewMux(transports[1]).Send(0, channelReport, encodeReport("n2", nil))
	if _, _, err := root.Gather(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	ways := root.Measure(t.Context(), func(int, int) {})
	if len(ways) != 1 || ways[0].Failure == "" {
		t.Fatalf("%+v", ways)
	}
	world := World{Reports: []Report{{0, "n1", nil}, {1, "n2", nil}}, Ways: ways}
	if found := checkPing(world); len(found) != 1 || found[0].Status != Bad ||
		!strings.Contains(found[0].Detail, "rank 0 (n1) to rank 1 (n2)") {
		t.Errorf("%+v", found)
	}
	if offsets := root.Clocks(t.Context()); len(offsets) != 1 {
		t.Errorf("a rank that is silent has a clock: %+v", offsets)
	}
}

// TestGatherEndsWithContext checks that Gather returns what has arrived, and the cause.
func TestGatherEndsWithContext(t *testing.T) {
	transports := transport.NewLocal(2)
	root := Join(transports[0], GroupOptions{Tick: make(chan time.Time)})
	defer root.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if reports, _, err := root.Gather(ctx, nil); !errors.Is(err, enough) || len(reports) != 1 {
		t.Error(reports, err)
	}
}

// TestGroupTakesAnyBytes checks that messages of another version of rankpool change nothing.
func TestGroupTakesAnyBytes(t *testing.T) {
	transports := transport.NewLocal(2)
	g := Join(transports[0], GroupOptions{Tick: make(chan time.Time)})
	defer g.Close()
	other := ranks.NewMux(transports[1])
	calls := ranks.NewCalls(other, channelCalls, nil)
	for _, request := range []string{"", "?", "pp", "q1", "b", "m{", `m{"to":99}`, `m{"to":-1}`} {
		if _, err := calls.Call(t.Context(), 0, []byte(request)); err == nil {
			t.Errorf("request %q is answered", request)
		}
	}
	for _, report := range []string{"", "r", "[]", "{"} {
		other.Send(0, channelReport, []byte(report))
	}
	other.Send(0, channelSigns, nil)
	if _, err := calls.Call(t.Context(), 0, []byte{askClock}); err != nil { // all have arrived
		t.Error(err)
	}
	if g.peers[1].report != nil {
		t.Errorf("%+v", g.peers[1])
	}
}

func never(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func TestRounds(t *testing.T) {
	for n := 2; n <= 130; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ways, ring := map[[2]int]bool{}, map[int]int{}
			for _, round := range rounds(n) {
				busy := map[int]bool{}
				for _, w := range round {
					if w.From < 0 || w.From >= n || w.To < 0 || w.To >= n || w.From == w.To || busy[w.From] ||
						busy[w.To] {
						t.Fatalf("%+v in %+v", w, round)
					}
					busy[w.From], busy[w.To] = true, true
					key := [2]int{min(w.From, w.To), max(w.From, w.To)}
					if ways[key] {
						t.Fatalf("%v twice", key)
					}
					ways[key] = true
					ring[w.From]++
					ring[w.To]++
				}
			}
			for r := range n {
				if r+1 < n && !ways[[2]int{r, r + 1}] || ring[r] == 0 {
					t.Errorf("rank %d is left out", r)
				}
			}
			if n > 2 && !ways[[2]int{0, n - 1}] {
				t.Error("the ring is open")
			}
			if want := min(n, n-1+min(1, n-2)+min(starRanks, max(0, n-3))); n <= 3 && len(ways) != want {
				t.Errorf("%d ways, want %d", len(ways), want)
			}
			if n > 3 && len(ways) != n+min(starRanks, n-3) {
				t.Errorf("%d ways", len(ways))
			}
		})
	}
}
