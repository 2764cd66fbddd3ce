package doctor

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// findingsOf returns the findings about ranks, with their statuses.
func findingsOf(w World) (texts []string) {
	for _, f := range w.Findings() {
		texts = append(texts, string(f.Status)+" "+f.Detail)
	}
	return texts
}

// TestGroup connects four ranks.
func TestGroup(t *testing.T) {
	const n = 4
	hosts := []string{"n1", "n2", "n3", "n3"}
	own := func(r int) []Finding {
		found := good("{} free", int64(r+1)<<30)
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
	want := []string{"good each rank reaches every other"}
	if got := findingsOf(World{reports, nil}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestLostRank checks that a rank that dies is reported, whatever it has sent by then, and that the
// others' findings make the list. Each message may be of another version of rankpool.
func TestLostRank(t *testing.T) {
	lost := "bad rank 2 has not reported, and does not respond"
	lostOn := "bad rank 2 on n3 has not reported, and does not respond"
	for name, c := range map[string]struct {
		sends map[byte]string // to the other ranks, by channel
		want  []string
	}{
		"before its greeting": {nil, []string{lost}},
		"after its greeting":  {map[byte]string{channelGreeting: "n3"}, []string{lostOn}},
		"in its report": {
			map[byte]string{channelGreeting: "n3", channelReport: `{"host": "n3`}, []string{lostOn},
		},
		"with another report": {map[byte]string{channelGreeting: "n3", channelReport: `[]`}, []string{lostOn}},
		"after its report": {
			map[byte]string{channelGreeting: "n3", channelReport: `{"host": "n3"}`},
			[]string{"good each rank reaches every other"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transports := transport.NewLocal(3)
				root, second := Join(transports[0], "n1", nil), Join(transports[1], "n2", nil)
				third := ranks.NewMux(transports[2])
				for channel, body := range c.sends {
					third.SendOthers(channel, []byte(body))
				}
				var other sync.WaitGroup
				other.Go(func() {
					second.Report(t.Context(), nil)
					if err := second.AwaitEnd(t.Context()); err != nil {
						t.Error(err)
					}
				})
				reports, lost, err := root.Gather(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				root.End()
				other.Wait()
				root.Close()
				second.Close()
				for _, of := range transports {
					_ = of.Close()
				}
				if got := findingsOf(World{Reports: reports, Lost: lost}); !slices.Equal(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// TestUnheard checks that a rank reports whom it has not heard.
func TestUnheard(t *testing.T) {
	transports := transport.NewLocal(3)
	g := Join(transports[1], "n2", make(chan time.Time))
	defer g.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, got := g.greetings(ctx); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("unheard: %v", got)
	}
	for _, r := range []int{0, 2} {
		ranks.NewMux(transports[r]).Send(1, channelGreeting, []byte("n"))
	}
	if _, got := g.greetings(t.Context()); got != nil {
		t.Errorf("unheard: %v", got)
	}
}

// TestSilentRoot checks that a rank does not wait forever for rank 0.
func TestSilentRoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transports := transport.NewLocal(2)
		g := Join(transports[1], "n1", nil)
		if err := g.AwaitEnd(t.Context()); !errors.Is(err, ErrSilent) {
			t.Error(err)
		}
		g.Close()
		for _, of := range transports {
			_ = of.Close()
		}
	})
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
