package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// patience is how long a rank may be silent before it counts as lost, and how long a rank that has
// made its checks waits for the greetings of others: who starts Python on few cores may be late.
const patience = 16 * time.Second

// The channels between ranks.
const (
	channelSigns    byte = iota // empty
	channelGreeting             // its host, from each rank to every other
	channelReport               // JSON: a Report, to rank 0
	channelEnd                  // from rank 0 to all
)

// A Group is one rank's side of the communication between all ranks. Each greets every other, and
// reports to rank 0 which greetings have come; rank 0 gathers the reports and ends the group. Every
// wait is bounded: a rank that sends nothing for 16 s counts as lost.
//
// Its methods may be called by several goroutines.
type Group struct {
	mux   *ranks.Mux
	watch *ranks.Watch
	host  string

	mu      sync.Mutex
	changed *sync.Cond
	peers   []other // by rank
	ended   bool
}

// other is the state of another rank.
type other struct {
	greeted bool // its greeting has come
	lost    bool
	host    string
	report  *Report
}

// Join starts communication on a transport that has not started yet. host is the name of this
// rank's node; tick is nil, or replaces the clock that counts seconds of silence.
func Join(t transport.Transport, host string, tick <-chan time.Time) *Group {
	g := &Group{mux: ranks.NewMux(t), host: host, peers: make([]other, t.Size())}
	g.changed = sync.NewCond(&g.mu)
	g.peers[t.Rank()].greeted = true
	g.mux.Handle(channelGreeting, func(from int, host []byte) {
		g.change(func() { g.peers[from].greeted, g.peers[from].host = true, string(host) })
	})
	g.mux.Handle(channelReport, func(from int, body []byte) {
		r := &Report{Rank: from}
		if json.Unmarshal(body, r) == nil {
			g.change(func() { g.peers[from].report = r })
		}
	})
	g.mux.Handle(channelEnd, func(int, []byte) { g.change(func() { g.ended = true }) })
	g.watch = ranks.NewWatch(g.mux.Channel(channelSigns), ranks.WatchOptions{
		Bound: patience, Ticks: tick,
		Heard: func(from int, _ []byte) { g.change(func() { g.peers[from].lost = false }) },
		Lost:  func(rank int) { g.change(func() { g.peers[rank].lost = true }) },
	})
	g.watch.Start()
	g.mux.SendOthers(channelGreeting, []byte(host))
	return g
}

// Close ends the signs of life, and waits for its callbacks. The caller closes the transport.
func (g *Group) Close() { g.watch.Stop() }

// change changes the state that await waits for.
func (g *Group) change(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
	g.changed.Broadcast()
}

// Report sends this rank's findings to rank 0, together with the ranks whose greeting has not come.
// It waits for greetings, but not longer than a rank may be silent.
func (g *Group) Report(ctx context.Context, findings []Finding) {
	body, err := json.Marshal(Report{Host: g.host, Findings: findings, Unheard: g.unheard(ctx)})
	if err != nil {
		panic("doctor: a finding cannot be sent: " + err.Error()) // an amount is finite
	}
	g.mux.Send(0, channelReport, body)
}

// unheard returns the ranks whose greeting has not come in time.
func (g *Group) unheard(ctx context.Context) (silent []int) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	// The end of ctx is no error: what is missing then is the result.
	_ = g.await(ctx, func() (bool, error) {
		return !slices.ContainsFunc(g.peers, func(p other) bool { return !p.greeted && !p.lost }), nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for rank, p := range g.peers {
		if !p.greeted {
			silent = append(silent, rank)
		}
	}
	return silent
}

// ErrSilent means that rank 0 sends no sign of life.
var ErrSilent = errors.New("doctor: rank 0 does not respond")

// AwaitEnd waits until rank 0 sends the end. Errors: ErrSilent, and the cause of ctx's end.
func (g *Group) AwaitEnd(ctx context.Context) error {
	return g.await(ctx, func() (bool, error) {
		if g.peers[0].lost {
			return true, ErrSilent
		}
		return g.ended, nil
	})
}

// End lets all ranks exit.
func (g *Group) End() {
	g.mux.SendOthers(channelEnd, nil)
}

// A Lost rank has not reported.
type Lost struct {
	Rank int
	Host string // "" if it never sent it
}

// Gather returns the reports of all ranks, including this rank's own findings, in order of rank,
// and the lost ranks. Only rank 0 calls it. The error is the cause of ctx's end; what has arrived
// by then is returned with it.
func (g *Group) Gather(ctx context.Context, own []Finding) (
	reports []Report, lost []Lost, err error,
) {
	g.mu.Lock()
	g.peers[0].report = &Report{Host: g.host, Findings: own}
	g.mu.Unlock()
	err = g.await(ctx, func() (bool, error) {
		return !slices.ContainsFunc(g.peers, func(p other) bool { return p.report == nil && !p.lost }),
			nil
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, p := range g.peers {
		if p.report != nil {
			reports = append(reports, *p.report)
		} else {
			lost = append(lost, Lost{r, p.host})
		}
	}
	return reports, lost, err
}

// await waits until done, which is called under the lock whenever something has changed, is true or
// ctx ends.
func (g *Group) await(ctx context.Context, done func() (bool, error)) error {
	stop := context.AfterFunc(ctx, func() {
		g.mu.Lock()
		g.changed.Broadcast()
		g.mu.Unlock()
	})
	defer stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if over, err := done(); over {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		g.changed.Wait()
	}
}
