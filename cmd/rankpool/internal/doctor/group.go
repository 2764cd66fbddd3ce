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
	"time"

	"rankpool/mpicache/transport"
)

const (
	lifeEvery = time.Second // between two signs of life
	// A rank that is silent for so many ticks counts as lost: one that starts Python on few cores may
	// be late.
	silentTicks = 15
)

// The first byte of a message is its kind.
const (
	kindAlive    = 'a' // host, newline, the check that runs
	kindReport   = 'r' // JSON: wireReport
	kindMeasure  = 'm' // JSON: a Way without results, from rank 0 to its From
	kindMeasured = 'd' // JSON: the Way, back
	kindPing     = 'p' // 8 bytes: a number
	kindPong     = 'q' // the number, 8 bytes: the clock in ns since 1970
	kindBulk     = 'b' // 4 bytes: the ticket under which the sender receives a bulk transfer
	kindEnd      = 'e' // from rank 0 to all
)

// GroupOptions has a Group's clocks. The zero value is ready to use.
type GroupOptions struct {
	Host string
	// nil: time.Now; the wall clock is compared, the monotonic one measures
	Now  func() time.Time
	Tick <-chan time.Time                  // nil: every second
	Late func() (<-chan time.Time, func()) // nil: 10 s: when a link between two ranks has not answered
}

// A Group is one rank's side of the communication between all ranks. Rank 0 gathers the reports,
// has links measured, and ends it; the others report and wait for the end. Every wait is bounded: a
// rank that sends nothing for 15 s counts as lost.
//
// Its methods may be called by several goroutines.
type Group struct {
	transport transport.Transport
	opt       GroupOptions
	stop      chan struct{}

	mu       sync.Mutex
	changed  *sync.Cond
	check    string  // that runs here
	ticks    int     // since the beginning
	peers    []other // by rank
	measured map[[2]int]Way
	waiting  map[uint64]chan pong
	next     uint64
	ended    bool
}

// other is the state of another rank.
type other struct {
	quiet       int // ticks since its last message
	host, check string
	report      *Report
}

func (p *other) lost() bool { return p.quiet > silentTicks }

// Join starts to communicate on a transport that is not started.
func Join(ranks transport.Transport, opt GroupOptions) *Group {
	g := &Group{
		transport: ranks, opt: opt, stop: make(chan struct{}),
		peers: make([]other, ranks.Size()), measured: map[[2]int]Way{},
		waiting: map[uint64]chan pong{},
	}
	g.changed = sync.NewCond(&g.mu)
	if g.opt.Now == nil {
		g.opt.Now = time.Now
	}
	if g.opt.Late == nil {
		g.opt.Late = func() (<-chan time.Time, func()) {
			timer := time.NewTimer(wayPatience)
			return timer.C, func() { timer.Stop() }
		}
	}
	end := func() {}
	if g.opt.Tick == nil {
		ticker := time.NewTicker(lifeEvery)
		g.opt.Tick, end = ticker.C, ticker.Stop
	}
	ranks.Start(g.handle)
	g.sign()
	go g.live(end)
	return g
}

// Close ends the signs of life. The caller closes the transport.
func (g *Group) Close() { close(g.stop) }

// Checking announces which check runs here now.
func (g *Group) Checking(name string) {
	g.mu.Lock()
	g.check = name
	g.mu.Unlock()
	g.sign()
}

// sign sends a sign of life: rank 0 to all, the others to rank 0.
func (g *Group) sign() {
	g.mu.Lock()
	sign := []byte(string(rune(kindAlive)) + g.opt.Host + "\n" + g.check)
	g.mu.Unlock()
	if g.transport.Rank() != 0 {
		g.transport.Post(0, sign)
		return
	}
	for r := 1; r < g.transport.Size(); r++ {
		g.transport.Post(r, sign)
	}
}

// live sends signs of life, and counts the others' silence.
func (g *Group) live(end func()) {
	defer end()
	for {
		select {
		case <-g.stop:
			return
		case <-g.opt.Tick:
		}
		g.mu.Lock()
		g.ticks++
		for i := range g.peers {
			g.peers[i].quiet++
		}
		g.changed.Broadcast()
		g.mu.Unlock()
		g.sign()
	}
}

// handle handles a message; the transport calls it.
func (g *Group) handle(from int, msg []byte) {
	if len(msg) == 0 {
		return
	}
	kind, body := msg[0], msg[1:]
	switch { // measurements first
	case kind == kindPing && len(body) == 8:
		g.transport.Post(from, binary.LittleEndian.AppendUint64(
			append([]byte{kindPong}, body...), uint64(g.opt.Now().UnixNano())))
		return
	case kind == kindPong && len(body) == 16:
		g.ponged(body)
		return
	case kind == kindBulk && len(body) == 4:
		// the receiver reports
		g.transport.Put(from, binary.LittleEndian.Uint32(body), bulk(true), func(error) {})
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.changed.Broadcast()
	p := &g.peers[from]
	p.quiet = 0
	switch kind {
	case kindAlive:
		p.host, p.check, _ = strings.Cut(string(body), "\n")
	case kindReport:
		var w wireReport
		if json.Unmarshal(body, &w) == nil {
			p.report = w.report(from)
		}
	case kindMeasure:
		var way Way
		if json.Unmarshal(body, &way) == nil && way.To >= 0 && way.To < g.transport.Size() {
			go g.measureFor(way)
		}
	case kindMeasured:
		var way Way
		if json.Unmarshal(body, &way) == nil {
			g.measured[[2]int{way.From, way.To}] = way
		}
	case kindEnd:
		g.ended = true
	}
}

// Report sends this rank's findings to rank 0.
func (g *Group) Report(findings []Finding) {
	g.transport.Post(0, append([]byte{kindReport}, encodeReport(g.opt.Host, findings)...))
}

// ErrSilent means that rank 0 sends no sign of life.
var ErrSilent = errors.New("doctor: rank 0 gives no sign of life")

// AwaitEnd waits until rank 0 sends the end. Errors: ErrSilent, and the cause of ctx's end.
func (g *Group) AwaitEnd(ctx context.Context) error {
	return g.await(ctx, func() (bool, error) {
		if g.peers[0].lost() {
			return true, ErrSilent
		}
		return g.ended, nil
	})
}

// End tells all ranks that they may exit.
func (g *Group) End() {
	for r := 1; r < g.transport.Size(); r++ {
		g.transport.Post(r, []byte{kindEnd})
	}
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
		return !slices.ContainsFunc(g.peers, func(p other) bool { return p.report == nil && !p.lost() }),
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

// wireReport is the encoding of a Report.
type wireReport struct {
	Host     string        `json:"host"`
	Findings []wireFinding `json:"findings"`
}

type wireFinding struct {
	Finding
	Amounts []Amount          `json:"amounts,omitempty"`
	Facts   map[string]string `json:"facts,omitempty"`
}

func encodeReport(host string, findings []Finding) []byte {
	w := wireReport{Host: host}
	for _, f := range findings {
		w.Findings = append(w.Findings, wireFinding{f, f.Amounts, f.Facts})
	}
	data, err := json.Marshal(w)
	if err != nil { // an amount that is not a number
		data, _ = json.Marshal(wireReport{host, []wireFinding{
			{Finding: bad(fmt.Sprintf("the findings cannot be sent: %v", err), "")},
		}})
	}
	return data
}

func (w wireReport) report(rank int) *Report {
	r := &Report{Rank: rank, Host: w.Host}
	for _, f := range w.Findings {
		f.Finding.Amounts, f.Finding.Facts = f.Amounts, f.Facts
		r.Findings = append(r.Findings, f.Finding)
	}
	return r
}
