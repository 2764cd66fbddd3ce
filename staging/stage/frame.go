package stage

import "sync/atomic"

// A segment is a stretch of a file in a frame, or its end.
type segment struct {
	Item   int32
	Offset int64 // in the file
	Bytes  int32 // in the frame, after those of the segments before
	End    *end  // of a segment without bytes, which may arrive before others
}

// end is the reader's summary of a file.
type end struct {
	Data   int64  // bytes in its segments
	Sum    uint64 // XXH3
	Reason string // why it could not be read; "" if it could
}

// A head announces a frame to the next rank of its chain.
type head struct {
	Origin   int32   // the rank that read it
	Class    uint8   // of the buffer that it needs, see transfer
	Chain    []int32 // the ranks after the receiver
	Ticket   uint32  // of the transport's Put and Take
	Segments []segment
	Bytes    int
}

// A frame is a chunk of bytes in transit: in a buffer, until it is written here and the next rank
// has it.
type frame struct {
	head
	buf     []byte // its capacity is a chunk
	uses    atomic.Int32
	release func() // gives back the buffer's place
}

// sent returns what is sent of the frame: at least a byte, so that empty frames go the same way.
func (f *frame) sent() [][]byte { return [][]byte{f.buf[:max(f.Bytes, 1)]} }

// add appends a segment whose bytes are at the end of buf.
func (f *frame) add(item int, offset int64, n int, e *end) {
	f.Segments = append(f.Segments, segment{int32(item), offset, int32(n), e})
	f.Bytes += n
}
