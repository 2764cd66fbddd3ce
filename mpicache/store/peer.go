package store

import (
	"encoding/binary"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/mpicache/fields"
	"rankpool/mpicache/message"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

var le = binary.LittleEndian

// Peers is what the stores of a rank know of the other ranks.
type Peers struct {
	timeout time.Duration // of a question
	log     *slog.Logger
	tickets atomic.Uint32 // of transfers
	bytes   atomic.Int64  // received

	mu   sync.Mutex
	lost []int // by rank: questions in a row that were not answered in time
}

// NewPeers returns what is known at the start of a number of ranks, this one included. A question
// is to be answered within timeout.
func NewPeers(ranks int, timeout time.Duration, log *slog.Logger) *Peers {
	return &Peers{timeout: timeout, log: log, lost: make([]int, ranks)}
}

// Bytes returns how many bytes of samples have come from other ranks.
func (p *Peers) Bytes() int64 { return p.bytes.Load() }

// silentAfter is after how many questions in a row without a timely answer a peer is asked nothing
// until one of the answers comes, however late.
const silentAfter = 3

// asking is a question to a peer, with the places for the answer.
type asking struct {
	stager.Ask
	ids      []draw.SampleID // requested, with a place
	at       []int           // their indexes in Ask.IDs
	places   []int64         // in the slab, kept when the question is abandoned
	bulk     uint32
	deadline time.Time
}

// asker names a peer's question.
type asker struct {
	peer   int
	ticket uint32
}

// mayAsk reports whether to ask a peer: it answers.
func (p *Peers) mayAsk(to int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost[to] < silentAfter
}

// note records that a peer has answered a question, or has not in time.
func (p *Peers) note(from int, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered {
		p.lost[from] = 0
		return
	}
	p.lost[from]++
	if p.lost[from] == silentAfter {
		p.log.Warn("a peer is silent; its samples are read from storage", "peer", from)
	}
}

// ask asks a peer for the samples that there is room for.
func (s *Store) ask(c stager.Ask) {
	a := &asking{
		Ask: c, bulk: s.rank.Peers.tickets.Add(1), deadline: s.rank.Now().Add(s.rank.Peers.timeout),
	}
	for i, id := range c.IDs {
		if s.occupy(id) {
			a.ids, a.at = append(a.ids, id), append(a.at, i)
			a.places = append(a.places, s.Place(id))
		}
	}
	if len(a.ids) == 0 {
		nothing := make([]stager.Status, len(c.IDs))
		s.Step(stager.Received{Ticket: c.Ticket, Status: nothing})
		return
	}
	s.asks[c.Ticket] = a
	if !s.rank.Peers.mayAsk(c.Peer) {
		s.giveUp(a)
		return
	}
	msg := s.trainings.About(c.Lane).Begin(message.Ask)
	for _, v := range []uint32{c.Ticket, a.bulk, uint32(c.Epoch), uint32(c.Batch)} {
		msg = le.AppendUint32(msg, v)
	}
	for _, id := range a.ids {
		msg = le.AppendUint32(msg, uint32(id))
	}
	s.rank.Transport.Post(c.Peer, msg)
}

// giveUp abandons a question. The peer may still write to its places, so they stay allocated until
// it has, or forever.
func (s *Store) giveUp(a *asking) {
	delete(s.asks, a.Ticket)
	for _, id := range a.ids {
		s.entries.Drop(int(id))
	}
	s.lost[a.Ticket] = a
	s.Step(stager.PeerLost{Ticket: a.Ticket})
}

func (s *Store) giveUpAsks(now time.Time) {
	for _, ticket := range slices.Sorted(maps.Keys(s.asks)) {
		if a := s.asks[ticket]; a != nil && now.After(a.deadline) {
			s.rank.Peers.note(a.Peer, false)
			s.giveUp(a)
		}
	}
}

// OnAsk passes a peer's question to the stager.
func (s *Store) OnAsk(from int, about message.About, body []byte) {
	c := fields.Reader{Rest: body}
	ticket, bulk, epoch, batch := c.U32(), c.U32(), c.U32(), c.U32()
	ids := fields.U32s[draw.SampleID](&c, nil, uint32(len(c.Rest)/4))
	unknown := func(id draw.SampleID) bool { return int(id) >= s.data.Held() }
	if !c.Whole() || slices.ContainsFunc(ids, unknown) {
		s.rank.Log.Error("malformed request", "from", from)
		return
	}
	s.Locked(func() {
		// the trainers here have not opened the data set: the peer reads storage
		lane, ok := s.trainings.Lane(about)
		if !ok {
			s.answer(from, ticket, make([]stager.Status, len(ids)))
			return
		}
		s.bulks[asker{from, ticket}] = bulk
		s.Step(stager.Asked{
			Lane: lane, Peer: from, Ticket: ticket, Epoch: int(epoch), Batch: int(batch), IDs: ids,
		})
	})
}

// send answers a question: first what there is, then the bytes straight from the slab.
func (s *Store) send(c stager.Send) {
	s.answer(c.Peer, c.Ticket, c.Status)
	key := asker{c.Peer, c.Ticket}
	bulk := s.bulks[key]
	delete(s.bulks, key)
	var segs [][]byte
	for i, id := range c.IDs {
		if c.Status[i] != stager.Absent {
			segs = append(segs, s.bytes(id))
		}
	}
	sent := stager.Sent{Peer: c.Peer, Ticket: c.Ticket}
	if len(segs) == 0 {
		s.Step(sent)
		return
	}
	s.rank.Transport.Put(c.Peer, bulk, segs, func(err error) {
		if err != nil {
			s.rank.Log.Error("an answer did not leave", "peer", c.Peer, "error", err)
		}
		s.Locked(func() { s.Step(sent) })
	})
}

func (s *Store) answer(to int, ticket uint32, status []stager.Status) {
	msg := le.AppendUint32(message.About{Set: s.index}.Begin(message.Answer), ticket)
	for _, st := range status {
		msg = append(msg, byte(st))
	}
	s.rank.Transport.Post(to, msg)
}

// OnAnswer receives the bytes of an answer into their places, even if the request was abandoned:
// they arrive anyway.
func (s *Store) OnAnswer(from int, body []byte) {
	c := fields.Reader{Rest: body}
	ticket, status := c.U32(), c.Rest
	s.rank.Peers.note(from, true)
	s.Locked(func() {
		a := s.asks[ticket]
		if a == nil {
			a = s.lost[ticket]
		}
		if a == nil || a.Peer != from || len(status) != len(a.ids) {
			s.rank.Log.Error("unexpected reply", "from", from)
			return
		}
		s.takeBytes(a, status)
	})
}

func (s *Store) takeBytes(a *asking, status []byte) {
	result := stager.Received{Ticket: a.Ticket, Status: make([]stager.Status, len(a.IDs))}
	var segs [][]byte
	for i, id := range a.ids {
		if st := stager.Status(status[i]); st != stager.Absent {
			result.Status[a.at[i]] = st
			segs = append(segs, s.rank.Memory.bytes(a.places[i], s.data.Size(id)))
			s.rank.Peers.bytes.Add(s.data.Size(id))
		}
	}
	if len(segs) == 0 {
		s.answered(a, result)
		return
	}
	s.rank.Transport.Take(a.Peer, a.bulk, segs, func(err error) {
		if err != nil {
			s.rank.Log.Error("an answer did not arrive", "peer", a.Peer, "error", err)
			result.Status = make([]stager.Status, len(a.IDs))
		}
		s.Locked(func() { s.answered(a, result) })
	})
}

// answered ends a request whose bytes have arrived.
func (s *Store) answered(a *asking, result stager.Received) {
	if s.lost[a.Ticket] == a {
		delete(s.lost, a.Ticket)
		for _, off := range a.places {
			s.rank.Memory.free(off)
		}
		return
	}
	delete(s.asks, a.Ticket)
	s.Step(result)
}
