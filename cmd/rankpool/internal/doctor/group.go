package doctor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
)

// silentSeconds is how long a rank may be silent before it counts as lost: one that starts Python
// on few cores may be late.
const silentSeconds = 16

// The channels between ranks.
const (
	channelSigns  byte = iota // host, newline, the check that runs
	channelReport             // JSON: a Report, to rank 0
	channelCalls
	channelEnd // from rank 0 to all
)

// The first byte of a request.
const (
	askMeasure = 'm' // JSON: a Way without results, from rank 0 to its From; the reply has them
	askClock   = 'p' // the reply has 8 bytes: the clock in ns since 1970
	askBulk    = 'b' // 4 bytes: the ticket under which the sender receives a bulk transfer
)

// GroupOptions holds the name of a Group's host, and its clocks. The zero value is ready to use.
type GroupOptions struct {
	Host string
	// nil: time.Now; the wall clock is compared, the monotonic one measures
	Now  func() time.Time
	Tick <-chan time.Time // nil: every second
	// nil: context.WithTimeout; ends the wait for a rank's reply
	Late func(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc)
}

// A Group is one rank's side of the communication between all ranks. Rank 0 gathers the reports,
// requests the measurements of links, and ends the group; the others report and wait for the end.
// Every wait is bounded: a rank that sends nothing for 16 s counts as lost.
//
// Its methods may be called by several goroutines.
type Group struct {
	mux     *ranks.Mux
	calls   *ranks.Calls
	watch   *ranks.Watch
	opt     GroupOptions
	tickets atomic.Uint32 // of bulk transfers

	mu      sync.Mutex
	changed *sync.Cond
	check   string  // that runs here
	peers   []other // by rank
	ended   bool
}

// other is the state of another rank.
type other struct {
	lost        bool
	host, check string
	report      *Report
}

// Join starts communication on a transport that has not started yet.
func Join(t transport.Transport, opt GroupOptions) *Group {
	g := &Group{mux: ranks.NewMux(t), opt: opt, peers: make([]other, t.Size())}
	g.changed = sync.NewCond(&g.mu)
	if g.opt.Now == nil {
		g.opt.Now = time.Now
	}
	if g.opt.Late == nil {
		g.opt.Late = context.WithTimeout
	}
	g.calls = ranks.NewCalls(g.mux, channelCalls, g.answer)
	g.mux.Handle(channelReport, func(from int, body []byte) {
		r := &Report{Rank: from}
		if json.Unmarshal(body, r) == nil {
			g.change(func() { g.peers[from].report = r })
		}
	})
	g.mux.Handle(channelEnd, func(int, []byte) { g.change(func() { g.ended = true }) })
	g.watch = ranks.NewWatch(g.mux, channelSigns, ranks.WatchOptions{
		Ticks: opt.Tick, Bound: silentSeconds, Sign: g.sign,
		Heard: func(from int, sign []byte) {
			g.change(func() {
				p := &g.peers[from]
				p.lost = false
				p.host, p.check, _ = strings.Cut(string(sign), "\n")
			})
		},
		Lost: func(rank int) { g.change(func() { g.peers[rank].lost = true }) },
	})
	g.watch.Send()
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

// Checking announces which check runs here now.
func (g *Group) Checking(name string) {
	g.change(func() { g.check = name })
	g.watch.Send()
}

func (g *Group) sign() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return []byte(g.opt.Host + "\n" + g.check)
}

// answer answers a request of another rank or of this one.
func (g *Group) answer(from int, request []byte, reply func([]byte, error)) {
	var way Way
	switch {
	case len(request) == 1 && request[0] == askClock:
		reply(binary.LittleEndian.AppendUint64(nil, uint64(g.opt.Now().UnixNano())), nil)
	case len(request) == 5 && request[0] == askBulk:
		// the receiver reports
		g.mux.Put(from, binary.LittleEndian.Uint32(request[1:]), toSend(), func(error) {})
		reply(nil, nil)
	case len(request) > 0 && request[0] == askMeasure && json.Unmarshal(request[1:], &way) == nil &&
		way.To >= 0 && way.To < g.mux.Size():
		go func() {
			if err := g.measure(&way); err != nil {
				way.Failure = err.Error()
			}
			reply(json.Marshal(way))
		}()
	default:
		reply(nil, errors.New("malformed request"))
	}
}

// Report sends this rank's findings to rank 0.
func (g *Group) Report(findings []Finding) {
	g.mux.Send(0, channelReport, encodeReport(g.opt.Host, findings))
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
	Rank  int
	Host  string // "" if it never sent it
	Check string // its last check
}

// Gather returns the reports of all ranks, including this rank's own findings, in order of rank,
// and the lost ranks. Only rank 0 calls it. The error is the cause of ctx's end; what has arrived
// by then is returned with it.
func (g *Group) Gather(ctx context.Context, own []Finding) (
	reports []Report, lost []Lost, err error,
) {
	g.mu.Lock()
	g.peers[0].report = &Report{0, g.opt.Host, own}
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
			lost = append(lost, Lost{r, p.host, p.check})
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

func encodeReport(host string, findings []Finding) []byte {
	data, err := json.Marshal(Report{Host: host, Findings: findings})
	if err != nil { // an amount that is not a number
		data, _ = json.Marshal(Report{
			Host: host, Findings: bad(fmt.Sprintf("the findings cannot be sent: %v", err), ""),
		})
	}
	return data
}
