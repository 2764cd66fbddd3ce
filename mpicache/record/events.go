package record

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"rankpool/scheduler"
)

// The events' kinds in a recording; they never change their meaning.
const (
	kindPlanned byte = iota + 1
	kindRequested
	kindWithdrawn
	kindReleased
	kindFetched
	kindStarved
	kindRoom
	kindReceived
	kindPeerLost
	kindAsked
	kindSent
	kindScored
	kindStored
	kindRecalled
	kindPreloaded
	kindShrunk
)

// planned stands for scheduler.Planned: what it takes to make the plan again, and a digest to compare the result by.
type planned struct {
	Epoch, From int
	Placed      bool
	Home        []uint16 // of each draw, if Placed
	Digest      uint64
}

// digest tells plans apart: by draws and consumers.
//
// Source: SHA-256, of which 64 bits do against accidents.
func digest(p *scheduler.Plan) uint64 {
	h := sha256.New()
	b := make([]byte, 0, 1<<12)
	for i, id := range p.IDs {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		b = binary.LittleEndian.AppendUint16(b, p.Consumer[i])
		if len(b) > cap(b)-6 || i == len(p.IDs)-1 {
			h.Write(b) // a hash takes everything
			b = b[:0]
		}
	}
	return binary.LittleEndian.Uint64(h.Sum(nil))
}

func codePlanned(c *coder, p *planned) {
	num(c, &p.Epoch)
	num(c, &p.From)
	c.flag(&p.Placed)
	if p.Placed {
		list(c, &p.Home)
	}
	c.u64(&p.Digest)
}

// scored stands for scheduler.Scored: the scores that changed, or with Whole those of all samples.
type scored struct {
	Epoch, Batch int
	IDs          []scheduler.SampleID
	Total        float64
	Whole        bool
	Values       []float32 // of IDs, or of all samples
	Known        []byte    // as Values; 1: it was ever scored
}

func newScored(e scheduler.Scored, whole bool) scored {
	n := len(e.IDs)
	if whole {
		n = len(e.Scores)
	}
	s := scored{
		Epoch: e.Epoch, Batch: e.Batch, IDs: e.IDs, Total: e.Total, Whole: whole,
		Values: make([]float32, 0, n), Known: make([]byte, 0, n),
	}
	add := func(id scheduler.SampleID) {
		known := byte(0)
		if e.Known(id) {
			known = 1
		}
		s.Values, s.Known = append(s.Values, e.Scores[id]), append(s.Known, known)
	}
	if !whole {
		for _, id := range e.IDs {
			add(id)
		}
		return s
	}
	for id := range e.Scores {
		add(scheduler.SampleID(id))
	}
	return s
}

func codeScored(c *coder, s *scored) {
	num(c, &s.Epoch)
	num(c, &s.Batch)
	list(c, &s.IDs)
	c.f64(&s.Total)
	c.flag(&s.Whole)
	c.f32s(&s.Values)
	list(c, &s.Known)
}

// The layouts of the events that hold no plan and no scores.
func codeRequested(c *coder, e *scheduler.Requested) {
	num(c, &e.Trainer)
	num(c, &e.Epoch)
	num(c, &e.Batch)
	num(c, &e.Ticket)
}

func codeWithdrawn(c *coder, e *scheduler.Withdrawn) { num(c, &e.Ticket) }
func codeReleased(c *coder, e *scheduler.Released)   { num(c, &e.Lease) }
func codeStarved(c *coder, e *scheduler.Starved)     { num(c, &e.ID) }
func codeRoom(*coder, *scheduler.Room)               {}
func codePeerLost(c *coder, e *scheduler.PeerLost)   { num(c, &e.Ticket) }

func codeFetched(c *coder, e *scheduler.Fetched) {
	num(c, &e.ID)
	c.problem(&e.Err)
}

func codeStored(c *coder, e *scheduler.Stored) {
	num(c, &e.ID)
	c.flag(&e.Busy)
	c.problem(&e.Err)
}

func codeRecalled(c *coder, e *scheduler.Recalled) {
	num(c, &e.ID)
	c.problem(&e.Err)
}

func codePreloaded(c *coder, e *scheduler.Preloaded) { list(c, &e.IDs) }

func codeShrunk(c *coder, e *scheduler.Shrunk) {
	num(c, &e.CapacityBytes)
	list(c, &e.IDs)
}

func codeReceived(c *coder, e *scheduler.Received) {
	num(c, &e.Ticket)
	list(c, &e.Status)
}

func codeAsked(c *coder, e *scheduler.Asked) {
	num(c, &e.Peer)
	num(c, &e.Ticket)
	num(c, &e.Epoch)
	num(c, &e.Batch)
	list(c, &e.IDs)
}

func codeSent(c *coder, e *scheduler.Sent) {
	num(c, &e.Peer)
	num(c, &e.Ticket)
}

// put appends a kind and a value of it.
func put[E any](c *coder, kind byte, code func(*coder, *E), e E) {
	c.b = append(c.b, kind)
	code(c, &e)
}

// get makes a function that reads a value.
func get[E any](code func(*coder, *E)) func(*coder) any {
	return func(c *coder) any {
		var e E
		code(c, &e)
		return e
	}
}

// eventReaders read what follows a kind: a scheduler.Event, planned or scored.
var eventReaders = map[byte]func(*coder) any{
	kindPlanned: get(codePlanned), kindScored: get(codeScored),
	kindRequested: get(codeRequested), kindWithdrawn: get(codeWithdrawn), kindReleased: get(codeReleased),
	kindFetched: get(codeFetched), kindStarved: get(codeStarved), kindRoom: get(codeRoom),
	kindReceived: get(codeReceived), kindPeerLost: get(codePeerLost), kindAsked: get(codeAsked), kindSent: get(codeSent),
	kindStored: get(codeStored), kindRecalled: get(codeRecalled), kindPreloaded: get(codePreloaded),
	kindShrunk: get(codeShrunk),
}

// writeEvent appends an event that holds no plan and no scores.
func writeEvent(c *coder, e scheduler.Event) {
	switch e := e.(type) {
	case scheduler.Requested:
		put(c, kindRequested, codeRequested, e)
	case scheduler.Withdrawn:
		put(c, kindWithdrawn, codeWithdrawn, e)
	case scheduler.Released:
		put(c, kindReleased, codeReleased, e)
	case scheduler.Fetched:
		put(c, kindFetched, codeFetched, e)
	case scheduler.Starved:
		put(c, kindStarved, codeStarved, e)
	case scheduler.Room:
		put(c, kindRoom, codeRoom, e)
	case scheduler.Received:
		put(c, kindReceived, codeReceived, e)
	case scheduler.PeerLost:
		put(c, kindPeerLost, codePeerLost, e)
	case scheduler.Asked:
		put(c, kindAsked, codeAsked, e)
	case scheduler.Sent:
		put(c, kindSent, codeSent, e)
	case scheduler.Stored:
		put(c, kindStored, codeStored, e)
	case scheduler.Recalled:
		put(c, kindRecalled, codeRecalled, e)
	case scheduler.Preloaded:
		put(c, kindPreloaded, codePreloaded, e)
	case scheduler.Shrunk:
		put(c, kindShrunk, codeShrunk, e)
	default:
		panic(fmt.Sprintf("record: an event of type %T cannot be written.", e))
	}
}

// readEvent returns the next event; nil, and c.err is set, when there is none.
func readEvent(c *coder) any {
	read := eventReaders[c.fixed(1)[0]]
	if read == nil {
		c.fail()
		return nil
	}
	return read(c)
}
