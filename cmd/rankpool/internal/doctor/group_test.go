package doctor

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/slurm"
)

// TestGroup connects four ranks: two on one node.
func TestGroup(t *testing.T) {
	const n = 4
	hosts := []string{"n1", "n2", "n3", "n3"}
	own := func(r int) []Finding {
		found := good("{} free", bytesOf(int64(r+1)<<30))
		found[0].Check = "memory"
		return found
	}
	groups := make([]*Group, n)
	for r, transport := range transport.NewLocal(n) {
		groups[r] = Join(transport, hosts[r], make(chan time.Time)) // no rank is silent
		defer transport.Close()
		defer groups[r].Close()
	}
	var others sync.WaitGroup
	for r := 1; r < n; r++ {
		others.Go(func() {
			groups[r].Report(t.Context(), own(r))
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
		if want := (Report{r, hosts[r], own(r), nil}); !reflect.DeepEqual(report, want) {
			t.Errorf("rank %d reported %+v, want %+v", r, report, want)
		}
	}
	groups[0].End()
	others.Wait()
	var got []string
	for _, f := range (World{Job: slurm.Job{Nodes: 3}, Reports: reports}).Findings() {
		got = append(got, string(f.Status)+" "+f.Detail)
	}
	if want := []string{
		"good each rank reaches every other", "warning several ranks share a node: n3",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLostRank checks that a rank that dies is reported, whatever it has sent by then, and that the
// others' findings make the list.
func TestLostRank(t *testing.T) {
	for _, c := range []struct {
		name    string
		sends   map[byte]string     // to the other ranks, by channel
		arrived func(at other) bool // what matters of them has arrived at rank 0
		want    []string
	}{
		{
			"before its greeting", nil, func(other) bool { return true },
			[]string{"bad rank 2 has not reported, and does not respond"},
		},
		{
			"after its greeting",
			map[byte]string{channelGreeting: "n3"},
			func(p other) bool { return p.greeted },
			[]string{"bad rank 2 on n3 has not reported, and does not respond"},
		},
		{
			"in its report",
			map[byte]string{channelGreeting: "n3", channelReport: `{"host": "n3`},
			func(p other) bool { return p.host != "" },
			[]string{"bad rank 2 on n3 has not reported, and does not respond"},
		},
		{
			"after its report",
			map[byte]string{channelGreeting: "n3", channelReport: `{"host": "n3"}`},
			func(p other) bool { return p.report != nil },
			[]string{"good each rank reaches every other", "good one rank on each of {} nodes"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			transports := transport.NewLocal(3)
			ticks := make(chan time.Time)
			root := Join(transports[0], "n1", ticks)
			defer root.Close()
			second := Join(transports[1], "n2", make(chan time.Time))
			defer second.Close()
			third := ranks.NewMux(transports[2])
			for channel, body := range c.sends {
				third.SendOthers(channel, []byte(body))
			}
			if err := second.await(t.Context(), func() (bool, error) {
				return second.peers[0].greeted, nil
			}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, greets := c.sends[channelGreeting]; !greets {
				cancel() // the second rank does not wait for a greeting that never comes
			}
			second.Report(ctx, nil)
			reports, lost := gather(t, root, ticks, func() bool {
				return root.peers[1].report != nil && c.arrived(root.peers[2])
			})
			var got []string
			for _, f := range (World{Reports: reports, Lost: lost}).Findings() {
				got = append(got, string(f.Status)+" "+f.Detail)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// gather ticks until rank 0 has all reports, but not before arrived, since ticks overtake messages.
func gather(t *testing.T, root *Group, ticks chan<- time.Time, arrived func() bool) (
	[]Report, []Lost,
) {
	t.Helper()
	if err := root.await(t.Context(), func() (bool, error) { return arrived(), nil }); err != nil {
		t.Fatal(err)
	}
	var (
		reports []Report
		lost    []Lost
		err     error
	)
	done := make(chan struct{})
	go func() {
		reports, lost, err = root.Gather(t.Context(), nil)
		close(done)
	}()
	for {
		select {
		case ticks <- time.Time{}:
			continue
		case <-done:
		}
		break
	}
	if err != nil {
		t.Fatal(err)
	}
	return reports, lost
}

// TestUnheard checks that a rank reports whom it has not heard.
func TestUnheard(t *testing.T) {
	transports := transport.NewLocal(3)
	g := Join(transports[1], "n2", make(chan time.Time))
	defer g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := g.unheard(ctx); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("unheard: %v", got)
	}
	for _, r := range []int{0, 2} {
		ranks.NewMux(transports[r]).Send(1, channelGreeting, nil)
	}
	if got := g.unheard(t.Context()); got != nil {
		t.Errorf("unheard: %v", got)
	}
}

// TestSilentRootEndsAssist checks that a rank does not wait forever for rank 0.
func TestSilentRootEndsAssist(t *testing.T) {
	transports := transport.NewLocal(2)
	ticks := make(chan time.Time)
	g := Join(transports[1], "n1", ticks)
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

// TestGatherEndsWithContext checks that Gather returns what has arrived, and the cause.
func TestGatherEndsWithContext(t *testing.T) {
	transports := transport.NewLocal(2)
	root := Join(transports[0], "n1", make(chan time.Time))
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
	g := Join(transports[0], "n1", make(chan time.Time))
	defer g.Close()
	other := ranks.NewMux(transports[1])
	for _, report := range []string{"", "r", "[]", "{"} {
		other.Send(0, channelReport, []byte(report))
	}
	other.Send(0, channelSigns, nil)
	other.Send(0, channelGreeting, []byte("?"))
	if got := g.unheard(t.Context()); got != nil { // all have arrived
		t.Error(got)
	}
	if g.peers[1].report != nil {
		t.Errorf("%+v", g.peers[1])
	}
}
