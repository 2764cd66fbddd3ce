package transport

import (
	"math/bits"
	"runtime"

	"rankpool/mpicache/transport/mpi"
)

const (
	// smallBytes is the size below which segments are packed together: copying 16 KiB takes
	// 0.5 µs, a separate message 2 to 10 µs.
	smallBytes   = 16 << 10
	packBytes    = 64 << 10 // the largest size of a pack
	messageBytes = 1 << 30  // segments above this are split: MPI counts bytes in an int
)

// message is one MPI message: a segment's bytes in place, or several small segments packed.
type message struct {
	buf   []byte   // what MPI sends or fills; of a pack: scratch memory, while it is under way
	pack  [][]byte // the small segments that travel together; nil for a segment of its own
	bytes int
	part  *transfer
}

// transfer completes when all of its messages have: a Put, a Take or a control message.
type transfer struct {
	left int // messages not finished
	err  error
	pins runtime.Pinner
	done func(error)
}

// group cuts segments into messages, the same ones at both ends, since it depends only on their
// lengths: a large segment is a message, small ones are collected into packs.
func group(segs [][]byte) []message {
	var messages []message
	var pack message
	for _, s := range segs {
		if len(s) >= smallBytes {
			for ; len(s) > messageBytes; s = s[messageBytes:] {
				messages = append(messages, message{buf: s[:messageBytes], bytes: messageBytes})
			}
			messages = append(messages, message{buf: s, bytes: len(s)})
			continue
		}
		if pack.bytes+len(s) > packBytes {
			messages = append(messages, pack)
			pack = message{}
		}
		if len(s) > 0 {
			pack.pack = append(pack.pack, s)
			pack.bytes += len(s)
		}
	}
	if pack.bytes > 0 {
		messages = append(messages, pack)
	}
	return messages
}

// tagOf is the MPI tag of a ticket; tag 0 is the control messages'. Tickets that are equal modulo
// the largest power of two within MPI's range (2^14 at least, 2^30 with Open MPI 4.1) share a tag;
// a power of two keeps tickets apart when they wrap around 2^32.
func tagOf(ticket uint32) int {
	return 1 + int(ticket)&(1<<(bits.Len(uint(mpi.MaxTag()))-1)-1)
}
