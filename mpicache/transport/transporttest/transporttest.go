// Package transporttest is the contract of transport.Transport as a test: one test that every
// transport must pass, run with all ranks in one process, or with one rank per process under
// mpirun.
package transporttest

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"rankpool/mpicache/transport"
)

// Run checks the contract. members are the ranks of one group that live in this process; the other
// ranks' processes call Run as well. It starts the transports, and closes them at its end. Every
// case is a program that all ranks run; a barrier separates cases.
func Run(t *testing.T, members []transport.Transport) {
	ranks := make([]*rank, len(members))
	for i, m := range members {
		ranks[i] = &rank{Transport: m, inbox: make([][][]byte, m.Size())}
		ranks[i].arrived = sync.NewCond(&ranks[i].mu)
		m.Start(ranks[i].keep)
	}
	for _, c := range []struct {
		name    string
		program func(r *rank)
	}{
		{"ControlOrder", controlOrder},
		{"ControlSizes", controlSizes},
		{"ControlFromCallbacks", controlFromCallbacks},
		{"TakeThenPut", takeThenPut},
		{"PutThenTake", putThenTake},
		{"PutsTakenBackwards", putsTakenBackwards},
		{"SegmentSizes", segmentSizes},
		{"NoBytes", noBytes},
		{"OtherLengths", otherLengths},
		{"TicketInUse", ticketInUse},
		{"AllPairs", allPairs},
		{"ManyGoroutines", manyGoroutines},
		{"Close", closeAll},
	} {
		t.Run(c.name, func(t *testing.T) {
			var all sync.WaitGroup
			for _, r := range ranks {
				r.TB = t
				all.Go(func() {
					r.barrier()
					c.program(r)
				})
			}
			all.Wait()
		})
	}
}

// rank is a transport with what a test program needs.
type rank struct {
	transport.Transport
	testing.TB
	mu      sync.Mutex
	arrived *sync.Cond
	inbox   [][][]byte // by sender
	closed  bool
}

// keep is the handler of control messages.
func (r *rank) keep(from int, msg []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		r.Errorf("rank %d: a message came after Close", r.Rank())
	}
	r.inbox[from] = append(r.inbox[from], bytes.Clone(msg))
	r.arrived.Broadcast()
}

// next waits for the next message from a sender.
func (r *rank) next(from int) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.inbox[from]) == 0 {
		r.arrived.Wait()
	}
	msg := r.inbox[from][0]
	r.inbox[from] = r.inbox[from][1:]
	return msg
}

// expect waits for the next message from a sender and compares it.
func (r *rank) expect(from int, want []byte) {
	if got := r.next(from); !bytes.Equal(got, want) {
		r.Errorf("rank %d: from rank %d came %d bytes %.20x, want %d bytes %.20x", r.Rank(), from,
			len(got), got, len(want), want)
	}
}

// flood posts messages to every rank, and expects the same number from every rank. message returns
// what one rank sends another.
func (r *rank) flood(messages int, message func(from, to, i int) []byte) {
	for i := range messages {
		for to := range r.Size() {
			msg := message(r.Rank(), to, i)
			r.Post(to, msg)
			clear(msg)
		}
	}
	for from := range r.Size() {
		for i := range messages {
			r.expect(from, message(from, r.Rank(), i))
		}
	}
}

// barrier waits until all ranks are in it.
func (r *rank) barrier() {
	for to := range r.Size() {
		r.Post(to, []byte("barrier"))
	}
	for from := range r.Size() {
		r.expect(from, []byte("barrier"))
	}
}

// noise is what all bytes are cut from: generating them each time would take most of the test's
// time.
var noise = func() []byte {
	b := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // It never fails.
	return b
}()

// bytesOf returns n (≤ 8 MiB) bytes that differ by sender and purpose.
func bytesOf(from, to int, ticket uint32, n int) []byte {
	start := (from*977 + to*131 + int(ticket%1000)*17) % (1 << 20)
	return bytes.Clone(noise[start : start+n])
}

// segments returns bytesOf, cut into the given lengths.
func segments(from, to int, ticket uint32, lengths []int) [][]byte {
	total := 0
	for _, n := range lengths {
		total += n
	}
	all := bytesOf(from, to, ticket, total)
	segs := make([][]byte, len(lengths))
	for i, n := range lengths {
		segs[i], all = all[:n:n], all[n:]
	}
	return segs
}

// transfers counts Puts and Takes under way.
type transfers struct {
	*rank
	sync.WaitGroup
}

func (r *rank) transfers() *transfers { return &transfers{rank: r} }

// put begins a Put of known bytes.
func (s *transfers) put(to int, ticket uint32, lengths []int) {
	s.Add(1)
	s.Put(to, ticket, segments(s.Rank(), to, ticket, lengths), func(err error) {
		defer s.Done()
		if err != nil {
			s.Errorf("rank %d: Put %d to rank %d: %v", s.Rank(), ticket, to, err)
		}
	})
}

// take begins a Take and compares what arrives. Bytes on both sides of each segment must stay as
// they are.
func (s *transfers) take(from int, ticket uint32, lengths []int) {
	const guard = 8
	frames, segs := make([][]byte, len(lengths)), make([][]byte, len(lengths))
	for i, n := range lengths {
		frames[i] = bytes.Repeat([]byte{0xa5}, n+2*guard)
		segs[i] = frames[i][guard : guard+n]
	}
	s.Add(1)
	s.Take(from, ticket, segs, func(err error) {
		defer s.Done()
		if err != nil {
			s.Errorf("rank %d: Take %d from rank %d: %v", s.Rank(), ticket, from, err)
			return
		}
		edge := bytes.Repeat([]byte{0xa5}, guard)
		for i, want := range segments(from, s.Rank(), ticket, lengths) {
			if !bytes.Equal(segs[i], want) {
				s.Errorf("rank %d: Take %d from rank %d: segment %d of %d bytes differs", s.Rank(),
					ticket, from, i, len(want))
			}
			if !bytes.HasPrefix(frames[i], edge) || !bytes.HasSuffix(frames[i], edge) {
				s.Errorf("rank %d: Take %d from rank %d wrote outside segment %d", s.Rank(), ticket,
					from, i)
			}
		}
	})
}
