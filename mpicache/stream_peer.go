package mpicache

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"rankpool/mpicache/fields"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// Messages between ranks: a kind, the data set's number, the job's name after its length, its u32
// generation if it has a name, then the payload. All ranks run the same build.
const (
	messageOpened  = 1  // Spec as JSON, of a trainer of the sender
	messageReports = 2  // REPORT and FINISH records
	messageAsk     = 3  // u32 ticket, u32 bulk, u32 epoch, u32 batch, u32 ids…
	messageAnswer  = 4  // u32 ticket, u8 status…
	messageCount   = 5  // an epoch's counts, as JSON
	messageBye     = 6  // the sender has sent all counts
	messageStats   = 7  // stats.Reading as JSON, to rank 0
	messageSource  = 12 // u32 generation, u32 epoch, the digest of the scores of its plan
	messageRefused = 13 // a sentence: the sender makes no plan
	messageOver    = 14 // no trainer of the sender from before the restart is alive
	messageSaved   = 16 // protocol.Saved as JSON: rank 0 has saved the state of a checkpoint
	messageIdle    = 15 // isEmpty, isUsed or isOver: whether the job has processes on the sender

	// One byte each, between ranks that are asked to end.
	messageLives  = 8  // does the receiver live?
	messageLived  = 9  // yes
	messageLeaves = 10 // the sender ends by itself
)

var le = binary.LittleEndian

// asJSON returns v, whose type is ours, as JSON.
func asJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("mpicache: a %T is not JSON: %v", v, err))
	}
	return text
}

// peerHealth is what this rank has seen of another one.
type peerHealth struct {
	lost    int       // questions in a row that were not answered in time
	retryAt time.Time // when to retry a peer that was given up
}

// silentAfter is after how many questions in a row without a timely answer a peer is asked only
// once in a while.
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

func (n *Node) onMessage(from int, msg []byte) {
	n.cfg.Pulse.heard(from, false) // any message is a sign of life
	if len(msg) == 1 && msg[0] == messageBye && n.report != nil {
		n.cfg.Pulse.heard(from, true)
		n.report.bye()
		return
	}
	if len(msg) == 1 && n.onLife(from, msg[0]) {
		return
	}
	c := fields.Reader{Rest: msg}
	head := c.Bytes(3)
	about := sender{rank: from, job: string(c.Bytes(int(head[2])))}
	if about.job != "" {
		about.generation = c.U32()
	}
	kind, index := head[0], head[1]
	if c.Short || int(index) >= len(n.streams) {
		n.cfg.Log.Error("malformed message", "from", from, "bytes", len(msg))
		return
	}
	set, body := n.streams[index].samples, c.Rest
	switch kind {
	case messageAsk:
		set.onAsk(about, body)
	case messageAnswer:
		set.onAnswer(from, body)
	case messageStats:
		n.observer.onStats(from, body)
	case messageOpened:
		set.onOpened(about, body)
	default:
		var s *stream
		set.locked(func() {
			if set.isCurrent(about.job, about.generation) {
				s = set.of(about.job)
			}
		})
		if s != nil { // nil: the training has ended here
			s.onMessage(kind, from, body)
		}
	}
}

// sender is the rank that a message is from, and the training that it is about.
type sender struct {
	rank       int
	job        string
	generation uint32
}

// onMessage handles a message about the training.
func (s *stream) onMessage(kind byte, from int, body []byte) {
	switch kind {
	case messageReports:
		s.onReports(from, body)
	case messageSource:
		s.onSource(from, body)
	case messageSaved:
		s.onSaved(from, body)
	case messageRefused: // then trainers here get no plan, either
		s.locked(func() { s.coordinate(protocol.Declined{Rank: from, Why: string(body)}) })
	case messageOver:
		s.onOver(from)
	case messageIdle:
		s.onIdle(from, body)
	case messageCount:
		s.node.report.onCount(from, s, body)
	}
}

// ask asks a peer for the samples that there is room for.
func (s *samples) ask(c stager.Ask) {
	a := &asking{
		Ask: c, bulk: s.node.bulk.Add(1), deadline: s.node.now().Add(s.node.cfg.PeerTimeout),
	}
	for i, id := range c.IDs {
		if s.occupy(id) {
			a.ids, a.at = append(a.ids, id), append(a.at, i)
			a.places = append(a.places, s.place(id))
		}
	}
	if len(a.ids) == 0 {
		nothing := make([]stager.Status, len(c.IDs))
		s.step(stager.Received{Ticket: c.Ticket, Status: nothing})
		return
	}
	s.asks[c.Ticket] = a
	if !s.node.mayAsk(c.Peer) {
		s.giveUp(a)
		return
	}
	msg := s.inLaneOf(c.Lane).message(messageAsk)
	for _, v := range []uint32{c.Ticket, a.bulk, uint32(c.Epoch), uint32(c.Batch)} {
		msg = le.AppendUint32(msg, v)
	}
	for _, id := range a.ids {
		msg = le.AppendUint32(msg, uint32(id))
	}
	s.node.cfg.Transport.Post(c.Peer, msg)
}

// toPeers sends a message to all other ranks.
func (n *Node) toPeers(msg []byte) {
	for r := range n.cfg.Transport.Size() {
		if r != n.cfg.Transport.Rank() {
			n.cfg.Transport.Post(r, msg)
		}
	}
}

// mayAsk reports whether to ask a peer: it answers, or has not been asked for a while.
func (n *Node) mayAsk(to int) bool {
	n.connMu.Lock()
	defer n.connMu.Unlock()
	p := &n.peers[to]
	if p.lost < silentAfter {
		return true
	}
	now := n.now()
	if now.Before(p.retryAt) {
		return false
	}
	p.retryAt = now.Add(n.cfg.PeerTimeout)
	return true
}

func (n *Node) noteAnswer(from int, inTime bool) {
	n.connMu.Lock()
	defer n.connMu.Unlock()
	p := &n.peers[from]
	if inTime {
		p.lost = 0
		return
	}
	p.lost++
	if p.lost == silentAfter {
		p.retryAt = n.now().Add(n.cfg.PeerTimeout)
		n.cfg.Log.Warn("a peer is silent; its samples are read from storage", "peer", from)
	}
}

// giveUp abandons a question. The peer may still write to its places, so they stay allocated until
// it has, or forever.
func (s *samples) giveUp(a *asking) {
	delete(s.asks, a.Ticket)
	for _, id := range a.ids {
		s.entries.Drop(int(id))
	}
	s.lost[a.Ticket] = a
	s.step(stager.PeerLost{Ticket: a.Ticket})
}

func (s *samples) giveUpAsks(now time.Time) {
	for _, ticket := range slices.Sorted(maps.Keys(s.asks)) {
		if a := s.asks[ticket]; a != nil && now.After(a.deadline) {
			s.node.noteAnswer(a.Peer, false)
			s.giveUp(a)
		}
	}
}

// onAsk passes a peer's question to the stager.
func (s *samples) onAsk(about sender, body []byte) {
	from, c := about.rank, fields.Reader{Rest: body}
	ticket, bulk, epoch, batch := c.U32(), c.U32(), c.U32(), c.U32()
	ids := fields.U32s[draw.SampleID](&c, nil, uint32(len(c.Rest)/4))
	unknown := func(id draw.SampleID) bool { return int(id) >= s.data.Samples }
	if !c.Whole() || slices.ContainsFunc(ids, unknown) {
		s.node.cfg.Log.Error("malformed request", "from", from)
		return
	}
	s.locked(func() {
		// the trainers here have not opened the data set: the peer reads storage
		current := s.isCurrent(about.job, about.generation)
		l := s.of(about.job)
		if !current || l == nil || !l.began {
			s.answer(from, ticket, make([]stager.Status, len(ids)))
			return
		}
		s.bulks[asker{from, ticket}] = bulk
		s.step(stager.Asked{
			Lane: l.lane, Peer: from, Ticket: ticket, Epoch: int(epoch), Batch: int(batch), IDs: ids,
		})
	})
}

// send answers a question: first what there is, then the bytes straight from the slab.
func (s *samples) send(c stager.Send) {
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
		s.step(sent)
		return
	}
	s.node.cfg.Transport.Put(c.Peer, bulk, segs, func(err error) {
		if err != nil {
			s.node.cfg.Log.Error("an answer did not leave", "peer", c.Peer, "error", err)
		}
		s.locked(func() { s.step(sent) })
	})
}

func (s *samples) answer(to int, ticket uint32, status []stager.Status) {
	msg := le.AppendUint32(s.message(messageAnswer), ticket)
	for _, st := range status {
		msg = append(msg, byte(st))
	}
	s.node.cfg.Transport.Post(to, msg)
}

// onAnswer receives the bytes of an answer into their places, even if the request was abandoned:
// they arrive anyway.
func (s *samples) onAnswer(from int, body []byte) {
	c := fields.Reader{Rest: body}
	ticket, status := c.U32(), c.Rest
	s.node.noteAnswer(from, true)
	s.locked(func() {
		a := s.asks[ticket]
		if a == nil {
			a = s.lost[ticket]
		}
		if a == nil || a.Peer != from || len(status) != len(a.ids) {
			s.node.cfg.Log.Error("unexpected reply", "from", from)
			return
		}
		s.takeBytes(a, status)
	})
}

func (s *samples) takeBytes(a *asking, status []byte) {
	result := stager.Received{Ticket: a.Ticket, Status: make([]stager.Status, len(a.IDs))}
	var segs [][]byte
	for i, id := range a.ids {
		if st := stager.Status(status[i]); st != stager.Absent {
			result.Status[a.at[i]] = st
			segs = append(segs, s.node.slab.Bytes(a.places[i], s.data.Size(id)))
			s.node.observer.peerBytes.Add(s.data.Size(id))
		}
	}
	if len(segs) == 0 {
		s.answered(a, result)
		return
	}
	s.node.cfg.Transport.Take(a.Peer, a.bulk, segs, func(err error) {
		if err != nil {
			s.node.cfg.Log.Error("an answer did not arrive", "peer", a.Peer, "error", err)
			result.Status = make([]stager.Status, len(a.IDs))
		}
		s.locked(func() { s.answered(a, result) })
	})
}

// answered ends a request whose bytes have arrived.
func (s *samples) answered(a *asking, result stager.Received) {
	if s.lost[a.Ticket] == a {
		delete(s.lost, a.Ticket)
		for _, off := range a.places {
			s.node.free(off)
		}
		return
	}
	delete(s.asks, a.Ticket)
	s.step(result)
}
