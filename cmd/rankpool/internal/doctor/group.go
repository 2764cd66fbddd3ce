package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// patience is how long a rank may be silent before it counts as lost, and how long a rank that has
// made its checks waits for the greetings of others: who starts Python on few cores may be late.
const patience = 16 * time.Second

// The channels between ranks. An empty message in one of the last three means that the rank is
// lost.
const (
	channelSigns    byte = iota
	channelGreeting      // its host, from each rank to every other
	channelReport        // JSON: a Report, to rank 0
	channelEnd           // from rank 0 to all
)

// A Group is one rank's side of the communication between all ranks. Each greets every other, and
// reports to rank 0 which greetings have come; rank 0 gathers the reports and ends the group. Every
// wait is bounded: a rank that sends nothing for 16 s counts as lost.
type Group struct {
	mux   *ranks.Mux
	watch *ranks.Watch
	host  string
}

// Join starts communication on a transport that has not started yet. host is the name of this
// rank's node; tick is nil, or replaces the clock that counts seconds of silence.
func Join(t transport.Transport, host string, tick <-chan time.Time) *Group {
	g := &Group{mux: ranks.NewMux(t), host: host}
	g.watch = ranks.NewWatch(g.mux.Channel(channelSigns), ranks.WatchOptions{
		Bound: patience, Ticks: tick,
		Lost: func(rank int) {
			for _, channel := range []byte{channelGreeting, channelReport, channelEnd} {
				g.mux.Deliver(rank, channel, nil)
			}
		},
	})
	g.watch.Start()
	g.mux.SendOthers(channelGreeting, []byte(host))
	return g
}

// Close ends the signs of life. The caller closes the transport.
func (g *Group) Close() { g.watch.Stop() }

// each receives a message from every other rank, by rank; nil from those that are lost, or silent
// until ctx ends.
func (g *Group) each(ctx context.Context, channel byte) ([][]byte, error) {
	bodies, came := make([][]byte, g.mux.Size()), make([]bool, g.mux.Size())
	came[g.mux.Rank()] = true
	for slices.Contains(came, false) {
		m, err := g.mux.Receive(ctx, channel)
		if err != nil {
			return bodies, err
		}
		if came[m.From] = true; len(m.Body) > 0 {
			bodies[m.From] = m.Body
		}
	}
	return bodies, nil
}

// greetings returns the hosts of the ranks whose greeting has come in time, and the other ranks.
func (g *Group) greetings(ctx context.Context) (hosts [][]byte, silent []int) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	hosts, _ = g.each(ctx, channelGreeting) // what is missing when ctx ends is the result
	for rank, host := range hosts {
		if host == nil && rank != g.mux.Rank() {
			silent = append(silent, rank)
		}
	}
	return hosts, silent
}

// Report sends this rank's findings to rank 0, together with the ranks whose greeting has not come.
func (g *Group) Report(ctx context.Context, findings []Finding) {
	_, silent := g.greetings(ctx)
	body, err := json.Marshal(Report{Host: g.host, Findings: findings, Unheard: silent})
	if err != nil {
		panic("doctor: a finding cannot be sent: " + err.Error()) // an amount is finite
	}
	g.mux.Send(0, channelReport, body)
}

// ErrSilent means that rank 0 sends no sign of life.
var ErrSilent = errors.New("doctor: rank 0 does not respond")

// AwaitEnd waits until rank 0 sends the end. Errors: ErrSilent, and the cause of ctx's end.
func (g *Group) AwaitEnd(ctx context.Context) error {
	for {
		switch m, err := g.mux.Receive(ctx, channelEnd); {
		case err != nil:
			return err
		case m.From != 0: // another rank is lost
		case len(m.Body) == 0:
			return ErrSilent
		default:
			return nil
		}
	}
}

// End lets all ranks exit.
func (g *Group) End() { g.mux.SendOthers(channelEnd, []byte("end")) }

// A Lost rank has not reported.
type Lost struct {
	Rank int
	Host string // "" if it never sent it
}

// Gather returns the reports of all ranks, including this rank's own findings, in order of rank,
// and the lost ranks. Only rank 0 calls it. The error is the cause of ctx's end.
func (g *Group) Gather(ctx context.Context, own []Finding) (
	reports []Report, lost []Lost, err error,
) {
	hosts, silent := g.greetings(ctx)
	reports = []Report{{Host: g.host, Findings: own, Unheard: silent}}
	bodies, err := g.each(ctx, channelReport)
	for rank, body := range bodies[1:] {
		r := Report{Rank: rank + 1}
		if json.Unmarshal(body, &r) == nil {
			reports = append(reports, r)
		} else {
			lost = append(lost, Lost{r.Rank, string(hosts[r.Rank])})
		}
	}
	return reports, lost, err
}
