// Package transport moves control messages and sample bytes between ranks: between goroutines of
// one process (Local), or between processes through an MPI library that is loaded at run time
// (MPI).
package transport

import "fmt"

// maxPostBytes is the largest control message.
const maxPostBytes = 64 << 20

// Transport moves control messages and sample bytes between ranks.
//
// Control messages arrive whole, and in order per sender. Bytes move by a Put at the rank that has
// them and a Take at the rank that wants them, called in either order. Both name the transfer by a
// ticket that the taker chooses. It increments its tickets, so that those of its outstanding
// transfers from one peer differ in their last 14 bits.
//
// A transport runs its callbacks (handle, done) on a single goroutine, one at a time. A callback
// must not block, and may call Post, Put and Take. All methods but Start may be called
// concurrently.
//
// A transport does not report a peer that is gone: messages to it are lost, those expected from it
// never arrive, and done may then never be called. The caller needs its own time-out, and must not
// reuse the memory of a Put or Take that is not done. After Close no callback runs, and Post, Put
// and Take do nothing.
type Transport interface {
	// Rank is this rank's number, 0 ≤ Rank() < Size().
	Rank() int
	// Size is the number of ranks.
	Size() int
	// Start begins delivery: handle is called for each control message; msg is valid during the
	// call only. Messages that came before wait. It is called once.
	Start(handle func(from int, msg []byte))
	// Post sends a control message of at most 64 MiB, possibly to itself. It copies msg and never
	// waits for the peer.
	Post(to int, msg []byte)
	// Put sends the bytes of segs to the peer under ticket; done is called once, when segs' memory
	// may be reused. Large segments are sent in place. A Put may have to wait until earlier Puts to
	// the peer are taken.
	Put(to int, ticket uint32, segs [][]byte, done func(error))
	// Take receives the bytes that the peer Puts under ticket into segs, which must have the
	// lengths of the Put's; done is called once, when the bytes have arrived, or with an error if
	// the lengths differ.
	Take(from int, ticket uint32, segs [][]byte, done func(error))
	// Close ends the transport. It waits a bounded time, a few seconds, for posted messages to be sent
	// and for the peers to close too; its error says which did not.
	Close() error
}

// checkPeer panics unless rank is in the group.
func checkPeer(rank, size int) {
	if rank < 0 || rank >= size {
		panic(fmt.Sprintf("transport: rank %d in a group of %d", rank, size))
	}
}

// checkPost panics if a control message has no receiver in the group, or is too large.
func checkPost(to, size int, msg []byte) {
	checkPeer(to, size)
	if len(msg) > maxPostBytes {
		panic(
			fmt.Sprintf("transport: a control message of %d bytes, at most %d are allowed",
				len(msg), maxPostBytes))
	}
}
