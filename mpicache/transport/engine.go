package transport

import (
	"fmt"
	"runtime"
	"time"

	"rankpool/mpicache/transport/mpi"
)

const (
	controlTag = 0
	// sendCredit is how many sends to a peer may be in flight, counted separately for control
	// messages and bulk sends: 7 MB of 110 KB samples.
	sendCredit = 64

	listenBurst = 64 // control messages received in one round

	// The last byte of a control message is its kind.
	kindMessage  = 0
	kindFarewell = 1
	kindEnd      = 2 // from rank 0: all ranks have said farewell
)

// engine is the goroutine that makes all MPI calls after Init, and its state. It is not locked to a
// thread: that would make a message 25 times slower (48 µs instead of 1.8 µs), since every
// hand-over would be a thread switch.
type engine struct {
	flows
	box       mailbox
	napper    *napper
	ended     chan struct{} // closed when run returns from its loop
	finalized chan struct{} // closed when MPI_Finalize has returned

	rank     int
	peers    []peer
	pairs    *pairing         // transfers of this rank with itself
	takes    map[pairKey]bool // tickets (as tags) of Takes that are not done
	own      [][]byte         // control messages of this rank to itself
	handle   func(from int, msg []byte)
	deadline time.Time // of the farewells; zero before Close
	ending   bool      // rank 0 has heard all farewells
}

// peer is the engine's state of another rank.
type peer struct {
	control     flow    // to it
	inbox       flow    // from it: control messages that are being received
	puts        []*flow // with messages that wait for credit
	credits     [2]int  // control's and puts'
	saidGoodbye bool
}

func newEngine(rank, size int) (*engine, error) {
	napper, err := newNapper()
	if err != nil {
		return nil, err
	}
	e := &engine{
		napper: napper, ended: make(chan struct{}), finalized: make(chan struct{}),
		rank: rank, peers: make([]peer, size), pairs: newPairing(), takes: map[pairKey]bool{},
	}
	for i := range e.peers {
		p := &e.peers[i]
		p.credits = [2]int{sendCredit, sendCredit}
		p.control = flow{peer: i, tag: controlTag, credit: &p.credits[0]}
		p.inbox = flow{peer: i, tag: controlTag, receives: true}
	}
	return e, nil
}

// submit runs f on the engine's goroutine.
func (e *engine) submit(f func()) {
	if e.box.put(f) {
		e.napper.wake()
	}
}

// run polls until Close, with naps that grow while nothing happens, and then ends MPI if all ranks
// have closed.
func (e *engine) run() {
	last := time.Now()
	for !e.over() {
		if e.poll() {
			last = time.Now()
			continue
		}
		d := napTime(time.Since(last), e.bulk > 0)
		if d == 0 {
			runtime.Gosched()
			continue
		}
		e.napper.nap(d, func() bool { return !e.box.empty() })
		for range wakePolls - 1 {
			if e.poll() {
				last = time.Now()
				break
			}
		}
	}
	close(e.ended)
	if e.missing() == nil {
		e.cancel()
		e.quiet()
		_ = mpi.Finalize() // Nothing depends on it any more.
		close(e.finalized)
	}
}

// poll makes one round: calls of this process, transfers, control messages. It reports whether
// anything happened.
func (e *engine) poll() bool {
	busy := e.box.drain() > 0
	busy = e.flows.poll(e.settled) || busy
	return e.listen() || busy
}

// settled gives waiting sends the credit that a flow's finished sends have returned.
func (e *engine) settled(f *flow) {
	if f.receives {
		return
	}
	if f.tag == controlTag {
		e.begin(f)
		return
	}
	p := &e.peers[f.peer]
	for len(p.puts) > 0 {
		e.begin(p.puts[0])
		if len(p.puts[0].queued) > 0 {
			return
		}
		p.puts = p.puts[1:]
	}
}

// post sends a control message; the engine keeps buf.
func (e *engine) post(to int, buf []byte) {
	if to == e.rank {
		e.own = append(e.own, buf)
		return
	}
	e.sends++
	f := &e.peers[to].control
	f.queued = append(
		f.queued, message{
			buf: buf, bytes: len(buf),
			part: &transfer{left: 1, done: func(error) {}},
		})
	e.begin(f)
}

// put sends the messages of a Put.
func (e *engine) put(to, tag int, messages []message, done func(error)) {
	if len(messages) == 0 {
		done(nil)
		return
	}
	e.sends += len(messages)
	p := &e.peers[to]
	f := &flow{peer: to, tag: tag, credit: &p.credits[1], queued: join(messages, done)}
	p.puts = append(p.puts, f)
	e.settled(f)
}

// take receives the messages of a Take; all receives are posted at once, so that every Put finds
// its match.
func (e *engine) take(from, tag int, messages []message, done func(error)) {
	key := pairKey{from, uint32(tag)}
	if e.takes[key] {
		done(fmt.Errorf("transport: a Take from rank %d with this ticket is not done", from))
		return
	}
	if len(messages) == 0 {
		done(nil)
		return
	}
	e.takes[key] = true
	e.begin(&flow{peer: from, tag: tag, receives: true, queued: join(messages, func(err error) {
		delete(e.takes, key)
		done(err)
	})})
}

// join makes messages the parts of one transfer.
func join(messages []message, done func(error)) []message {
	part := &transfer{left: len(messages), done: done}
	for i := range messages {
		messages[i].part = part
	}
	return messages
}

// listen receives pending control messages, and delivers this rank's own.
func (e *engine) listen() bool {
	if e.handle == nil && e.deadline.IsZero() {
		return false
	}
	busy := len(e.own) > 0
	for i := 0; i < len(e.own); i++ {
		e.deliver(e.rank, e.own[i])
	}
	e.own = e.own[:0]
	for range listenBurst { // Then the other work has its turn.
		from, sizeBytes, matched, ok, err := mpi.Improbe(controlTag)
		if err != nil || !ok {
			break
		}
		busy = true
		e.receive(from, sizeBytes, matched)
	}
	return busy
}

// receive accepts a matched control message; it is delivered once it and all earlier ones are
// complete.
func (e *engine) receive(from, sizeBytes int, matched mpi.Message) {
	buf := make([]byte, sizeBytes)
	part := &transfer{left: 1, done: func(err error) {
		if err == nil {
			e.deliver(from, buf)
		}
	}}
	part.pins.Pin(&buf[0])
	r, err := mpi.Imrecv(buf, matched)
	e.adopt(&e.peers[from].inbox, message{buf: buf, bytes: sizeBytes, part: part}, r, err)
}

// deliver passes a control message to its handler.
func (e *engine) deliver(from int, buf []byte) {
	msg, kind := buf[:len(buf)-1], buf[len(buf)-1]
	switch {
	case kind == kindFarewell:
		e.peers[from].saidGoodbye = true
	case kind == kindEnd:
		e.ending = true
	case e.handle != nil:
		e.handle(from, msg)
	}
}

// farewell begins the end: it notifies the peers, after everything that was posted.
func (e *engine) farewell() {
	e.deadline = time.Now().Add(closeWait)
	for i := range e.peers {
		e.post(i, []byte{kindFarewell})
	}
}

// over reports whether the loop may end: everything has been sent, all peers have closed, and rank
// 0 knows that; or the time is up.
func (e *engine) over() bool {
	switch {
	case e.deadline.IsZero():
		return false
	case time.Now().After(e.deadline):
		return true
	case e.sends > 0 || e.missing() != nil:
		return false
	case e.ending:
		return true
	case e.rank == 0:
		e.end()
		return e.sends == 0
	}
	return false
}

// end has all ranks leave their loops.
func (e *engine) end() {
	e.ending = true
	for i := range e.peers {
		if i != e.rank {
			e.post(i, []byte{kindEnd})
		}
	}
}

// quiet waits before MPI_Finalize, without MPI calls.
func (e *engine) quiet() {
	switch {
	case len(e.peers) == 1:
	case e.rank == 0:
		time.Sleep(quietRank0)
	default:
		time.Sleep(quietOthers)
	}
}

// missing returns an error that names the ranks that have not closed, or nil.
func (e *engine) missing() error {
	var ranks []int
	for i := range e.peers {
		if !e.peers[i].saidGoodbye {
			ranks = append(ranks, i)
		}
	}
	if len(ranks) == 0 {
		return nil
	}
	return fmt.Errorf("transport: closed, but ranks %v have not within %v", ranks, closeWait)
}
