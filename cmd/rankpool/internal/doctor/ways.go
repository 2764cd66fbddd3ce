package doctor

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	wayPatience = 10 * time.Second // for one answer on a link
	// rank 0's wait for a round of measurements.
	roundPatience = 4 * wayPatience
	// before the first one that counts: ranks that sleep between messages must wake up.
	warmPings   = 20
	pings       = 100
	clockPings  = 8
	bulkBytes   = 8 << 20 // of a segment: at 10 GB/s 0.8 ms, some hundred times the latency
	bulkSegs    = 4
	bulkRounds  = 3
	starRanks   = 32 // that rank 0 measures its link to, besides its neighbours
	clocksAhead = 16 // ranks whose clock is requested at a time
)

// A Way is the link between two ranks, as measured by From.
type Way struct {
	From      int           `json:"from"`
	To        int           `json:"to"`
	Ping      time.Duration `json:"ping"`      // round trip of 8 bytes, the median
	Bandwidth float64       `json:"bandwidth"` // bytes per second, the median
	Failure   string        `json:"failure"`   // "": none
}

// rounds returns the links to measure among n ranks: a ring of neighbours, and rank 0 to at most 32
// others, spread over all. Links of one round have no rank in common, so they can be measured at
// the same time.
func rounds(n int) [][]Way {
	all := make([][]Way, 3) // from even ranks, from odd ones, and what closes an odd ring
	for r := range n - 1 {
		all[r%2] = append(all[r%2], Way{From: r, To: r + 1})
	}
	if n > 2 {
		closing := 1 + n%2
		all[closing] = append(all[closing], Way{From: n - 1, To: 0})
	}
	all = slices.DeleteFunc(all, func(round []Way) bool { return len(round) == 0 })
	others := max(0, n-3) // ranks 2 … n-2
	for i := range min(others, starRanks) {
		all = append(all, []Way{{From: 0, To: 2 + i*others/min(others, starRanks)}})
	}
	return all
}

// Measure measures the links between ranks, and returns them with their results. Only rank 0 calls
// it. Links to lost ranks are left out; progress is called before each round. It ends early with
// ctx.
func (g *Group) Measure(ctx context.Context, progress func(round, rounds int)) []Way {
	var all []Way
	plan := rounds(g.mux.Size())
	for i, round := range plan {
		progress(i, len(plan))
		round = slices.DeleteFunc(round, func(w Way) bool { return g.isLost(w.From) || g.isLost(w.To) })
		all = append(all, g.measureRound(ctx, round)...)
		if ctx.Err() != nil {
			break
		}
	}
	return all
}

func (g *Group) isLost(rank int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peers[rank].report == nil
}

// measureRound asks the first rank of each link to measure it, and returns the links with their
// results.
func (g *Group) measureRound(ctx context.Context, round []Way) []Way {
	ctx, stop := g.opt.Late(ctx, roundPatience)
	defer stop()
	var all sync.WaitGroup
	for i := range round {
		all.Go(func() {
			order, _ := json.Marshal(round[i]) // marshalling numbers cannot fail
			result, err := g.calls.Call(ctx, round[i].From, append([]byte{askMeasure}, order...))
			if err != nil || json.Unmarshal(result, &round[i]) != nil {
				round[i].Failure = "no answer"
			}
		})
	}
	all.Wait()
	return round
}

func (g *Group) measure(way *Way) error {
	var took []time.Duration
	for i := range warmPings + pings {
		p, err := g.ping(way.To)
		if err != nil {
			return err
		}
		if i >= warmPings {
			took = append(took, p.trip)
		}
	}
	slices.Sort(took)
	way.Ping = took[len(took)/2]
	var rates []float64
	for i := range 1 + bulkRounds { // the first one is a warm-up
		began := g.opt.Now()
		if err := g.takeBulk(way.To); err != nil {
			return err
		}
		if seconds := g.opt.Now().Sub(began).Seconds(); i > 0 && seconds > 0 {
			rates = append(rates, bulkSegs*bulkBytes/seconds)
		}
	}
	if len(rates) == 0 {
		return errors.New("the clock does not advance")
	}
	slices.Sort(rates)
	way.Bandwidth = rates[len(rates)/2]
	return nil
}

// A pong is the answer to a ping.
type pong struct {
	trip   time.Duration
	offset time.Duration // the peer's clock minus this rank's; wrong by at most half of trip
}

var errLate = errors.New("no answer in " + wayPatience.String())

// ping sends a small message back and forth.
func (g *Group) ping(to int) (pong, error) {
	late, stop := g.opt.Late(context.Background(), wayPatience)
	defer stop()
	began := g.opt.Now()
	clock, err := g.calls.Call(late, to, []byte{askClock})
	if err != nil || len(clock) != 8 {
		return pong{}, errLate
	}
	trip := g.opt.Now().Sub(began)
	there := int64(binary.LittleEndian.Uint64(clock))
	return pong{trip, time.Duration(there - began.UnixNano() - int64(trip/2))}, nil
}

// toSend are the segments of one large transfer, which are all the same memory.
var toSend = sync.OnceValue(func() [][]byte {
	return slices.Repeat([][]byte{make([]byte, bulkBytes)}, bulkSegs)
})

// takeBulk transfers 32 MiB from the peer to here.
func (g *Group) takeBulk(from int) error {
	ticket := g.tickets.Add(1)
	done := make(chan error, 1)
	late, stop := g.opt.Late(context.Background(), wayPatience)
	defer stop()
	segs := make([][]byte, bulkSegs)
	for i := range segs {
		segs[i] = make([]byte, bulkBytes)
	}
	g.mux.Take(from, ticket, segs, func(err error) { done <- err })
	order := binary.LittleEndian.AppendUint32([]byte{askBulk}, ticket)
	if _, err := g.calls.Call(late, from, order); err != nil {
		return errLate
	}
	select {
	case err := <-done:
		return err
	case <-late.Done(): // the memory still belongs to the transport, and is never used again
		return errLate
	}
}

// An Offset is the difference between a rank's clock and rank 0's.
type Offset struct {
	Rank   int
	Offset time.Duration
	Error  time.Duration // half of the round trip of the measurement
}

// Clocks asks all ranks that have reported for their clocks. Only rank 0 calls it. Ranks that do
// not answer are left out.
func (g *Group) Clocks(ctx context.Context) []Offset {
	offsets := make([]*Offset, g.mux.Size())
	offsets[0] = &Offset{}
	var all sync.WaitGroup
	room := make(chan struct{}, clocksAhead)
	for r := 1; r < g.mux.Size() && ctx.Err() == nil; r++ {
		if g.isLost(r) {
			continue
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			best := pong{trip: 1 << 62}
			for range clockPings {
				p, err := g.ping(r)
				if err != nil {
					return
				}
				if p.trip < best.trip {
					best = p
				}
			}
			offsets[r] = &Offset{r, best.offset, best.trip / 2}
		})
	}
	all.Wait()
	var known []Offset
	for _, o := range offsets {
		if o != nil {
			known = append(known, *o)
		}
	}
	return known
}
