package transport_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"rankpool/mpicache/transport"
)

// checkContract is the contract of transport.Transport as a test, which every transport must pass:
// with all ranks in one process, or with one rank per process under mpirun.
//
// members are the ranks of one group that live in this process; the other ranks' processes call it
// as well. It starts the transports, and closes them at its end. Every case is a program that all
// ranks run; a barrier separates cases.
func checkContract(t *testing.T, members []transport.Transport) {
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

// controlOrder floods every rank, itself included; messages arrive in order per sender.
func controlOrder(r *rank) {
	r.flood(500, func(_, _, i int) []byte { return fmt.Appendf(nil, "message %d", i) })
}

// controlSizes sends messages of 0 bytes to 5 MiB; a short one does not overtake a long one, and
// the sender may reuse its memory.
func controlSizes(r *rank) {
	sizes := []int{0, 1, 4096, 5 << 20, 3, 65_537, 0, 1 << 20, 7}
	r.flood(len(sizes), func(from, to, i int) []byte {
		return bytesOf(from, to, uint32(i), sizes[i])
	})
}

// controlFromCallbacks posts, puts and takes from inside done.
func controlFromCallbacks(r *rank) {
	var own sync.WaitGroup
	own.Add(r.Size())
	for peer := range r.Size() {
		first := [][]byte{make([]byte, 100)}
		r.Take(peer, 1, first, func(error) {
			second := [][]byte{make([]byte, 100_000)}
			r.Take(peer, 2, second, func(error) {
				r.Post(peer, []byte("taken"))
				own.Done()
			})
		})
		r.Put(peer, 1, [][]byte{make([]byte, 100)}, func(error) {
			r.Put(peer, 2, [][]byte{make([]byte, 100_000)}, func(error) {})
		})
	}
	for from := range r.Size() {
		r.expect(from, []byte("taken"))
	}
	own.Wait() // Otherwise this rank's barrier could come before its last "taken".
}

// mixed is a batch of segments of both kinds, packed and not.
var mixed = []int{1, 20_000, 300, 16_383, 16_384, 110_000, 0, 64 << 10, 5}

func takeThenPut(r *rank) { inTurn(r, 7, (*transfers).take, (*transfers).put) }

func putThenTake(r *rank) { inTurn(r, 8, (*transfers).put, (*transfers).take) }

// inTurn begins one half of a transfer with every rank, and the other when all have begun.
func inTurn(r *rank, ticket uint32,
	first, second func(s *transfers, peer int, ticket uint32, lengths []int),
) {
	s := r.transfers()
	for peer := range r.Size() {
		first(s, peer, ticket, mixed)
	}
	r.barrier()
	for peer := range r.Size() {
		second(s, peer, ticket, mixed)
	}
	s.Wait()
}

// putsTakenBackwards takes in the opposite order, with tickets that wrap around the end of their
// range.
func putsTakenBackwards(r *rank) {
	tickets := []uint32{math.MaxUint32 - 1, math.MaxUint32, 0, 1, 2, 100}
	s := r.transfers()
	for _, ticket := range tickets {
		for peer := range r.Size() {
			s.put(peer, ticket, mixed)
		}
	}
	r.barrier()
	for i := range tickets {
		for peer := range r.Size() {
			s.take(peer, tickets[len(tickets)-1-i], mixed)
		}
	}
	s.Wait()
}

// segmentSizes goes from one byte to 8 MiB, and to many small segments.
func segmentSizes(r *rank) {
	lists := [][]int{{1}, {16_383}, {16_384}, {65_536}, {8 << 20}, {3, 1 << 20, 3}}
	rng := rand.New(rand.NewPCG(1, 2)) // The same at all ranks.
	many := make([]int, 3000)
	for i := range many {
		many[i] = rng.IntN(3000)
	}
	random := make([]int, 100)
	for i := range random {
		random[i] = int(math.Exp(rng.Float64() * math.Log(1<<20)))
	}
	s := r.transfers()
	next, previous := (r.Rank()+1)%r.Size(), (r.Rank()+r.Size()-1)%r.Size()
	for i, lengths := range append(lists, many, random) {
		s.take(previous, uint32(i), lengths)
		s.put(next, uint32(i), lengths)
	}
	s.Wait()
}

// noBytes moves nothing, and completes.
func noBytes(r *rank) {
	s := r.transfers()
	for peer := range r.Size() {
		for ticket, lengths := range [][]int{{}, {0}, {0, 0, 0}} {
			s.put(peer, uint32(ticket), lengths)
			s.take(peer, uint32(ticket), lengths)
		}
	}
	s.Wait()
}

// otherLengths calls Take with other lengths than Put: it must return an error, not other bytes.
func otherLengths(r *rank) {
	for ticket, lengths := range [][2]int{
		{1000, 900},
		{900, 1000},
		{100_000, 99_999},
		{99_999, 100_000},
	} {
		var both sync.WaitGroup
		both.Add(2 * r.Size())
		for peer := range r.Size() {
			r.Put(peer, uint32(ticket), [][]byte{make([]byte, lengths[0])},
				func(error) { both.Done() })
			r.Take(peer, uint32(ticket), [][]byte{make([]byte, lengths[1])}, func(err error) {
				defer both.Done()
				if err == nil {
					r.Errorf(
						"rank %d: a Take of %d bytes met a Put of %d from rank %d without an error",
						r.Rank(), lengths[1], lengths[0], peer)
				}
			})
		}
		both.Wait()
	}
}

// ticketInUse takes twice with one ticket: the second Take fails, the first is unharmed.
func ticketInUse(r *rank) {
	s := r.transfers()
	for peer := range r.Size() {
		s.take(peer, 9, mixed)
		refused := make(chan error)
		r.Take(peer, 9, [][]byte{make([]byte, 10)}, func(err error) { refused <- err })
		if <-refused == nil {
			r.Errorf("rank %d: a ticket was taken twice from rank %d", r.Rank(), peer)
		}
	}
	r.barrier()
	for peer := range r.Size() {
		s.put(peer, 9, mixed)
	}
	s.Wait()
}

// allPairs has every rank read many batches from every rank at once.
func allPairs(r *rank) {
	batch := make([]int, 32)
	for i := range batch {
		batch[i] = 1 + (i*7919)%40_000
	}
	s := r.transfers()
	for ticket := range uint32(6) {
		for peer := range r.Size() {
			s.take(peer, ticket, batch)
			s.put(peer, ticket, batch)
		}
	}
	s.Wait()
}

// manyGoroutines submits from many goroutines; each one's messages to a rank stay in order.
func manyGoroutines(r *rank) {
	const goroutines, messages = 8, 20
	s := r.transfers()
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range messages {
				ticket := uint32(g*messages + i)
				for peer := range r.Size() {
					r.Post(peer, []byte{byte(g), byte(i)})
					s.take(peer, ticket, []int{500, 20_000})
					s.put(peer, ticket, []int{500, 20_000})
				}
			}
		})
	}
	for from := range r.Size() {
		var count [goroutines]byte
		for range goroutines * messages {
			msg := r.next(from)
			if msg[1] != count[msg[0]] {
				r.Errorf("rank %d: goroutine %d of rank %d: message %d came as number %d", r.Rank(),
					msg[0], from, msg[1], count[msg[0]])
			}
			count[msg[0]]++
		}
	}
	all.Wait()
	s.Wait()
}

// closeAll closes with a Take that is never answered: no callback runs after Close, and later calls
// do nothing.
func closeAll(r *rank) {
	r.Take((r.Rank()+1)%r.Size(), 1, [][]byte{make([]byte, 100_000)}, func(err error) {
		r.Errorf("rank %d: a Take without a Put was done: %v", r.Rank(), err)
	})
	r.barrier()
	for range 2 { // A second Close does nothing more.
		if err := r.Close(); err != nil {
			r.Errorf("rank %d: Close: %v", r.Rank(), err)
		}
	}
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for peer := range r.Size() {
		r.Post(peer, []byte("late"))
		r.Put(peer, 1, [][]byte{{1}},
			func(error) { r.Errorf("rank %d: a Put after Close was done", r.Rank()) })
	}
}
