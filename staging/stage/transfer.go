package stage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"rankpool/mpicache/transport/ranks"
)

// A transfer copies to this rank the files that it is missing, and to others the files that this
// rank reads for them.
//
// A frame travels from the rank that reads it along its chain: each rank forwards it to the next as
// soon as it has arrived, and writes it meanwhile. The ranks of a chain are in the order of a ring,
// so every link of the ring carries (n-1)/n of all bytes at the same time.
//
// Memory is bounded: a frame is sent when the next rank has a buffer for it, and keeps its own
// until then. Waiting in a ring could deadlock, so buffers come in two classes: a frame needs one
// of class 0, and one of class 1 once it has gone from a higher rank to a lower one, which it does
// at most once. So no buffer ever waits for itself, over any number of ranks.
type transfer struct {
	s      *session
	source *tree
	needs  []set     // of all ranks
	share  readShare // of this rank
	ctx    context.Context
	stop   context.CancelCauseFunc

	own    *semaphore.Weighted // buffers for what this rank reads
	writes chan *frame
	work   sync.WaitGroup // unsettled items, unreleased frames, and 1 while this rank reads

	mu      sync.Mutex
	waiting [2][]arrival     // heads without a buffer
	served  [2]map[int32]int // frames accepted, by the rank that read them
	room    [2]int           // buffers that are free
	sent    map[int]uint32   // frames sent to each rank
	calls   *ranks.Calls     // a head is answered when its frame has been taken

	byteLimit, openLimit *rate.Limiter // this rank's share of the limits

	buffers  sync.Pool // of chunks
	placings sync.Map  // *placing by item (int32), of files that are being written
}

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

// An arrival is a head that has arrived.
type arrival struct {
	head
	from  int
	reply func([]byte, error)
}

func newTransfer(ctx context.Context, s *session) *transfer {
	opt := s.opt
	t := &transfer{
		s: s, source: &tree{root: s.plan.Root, fault: opt.sourceFault},
		own:    semaphore.NewWeighted(int64(opt.Readers + opt.Buffers)),
		writes: make(chan *frame, opt.Readers+3*opt.Buffers),
		room:   [2]int{opt.Buffers, opt.Buffers},
		served: [2]map[int32]int{{}, {}},
		sent:   map[int]uint32{},
	}
	for _, l := range s.shortfalls {
		t.needs = append(t.needs, l.Need)
	}
	t.share = readers(s.plan, t.needs, s.mux.Rank())
	t.byteLimit = limit(opt.MaxBytesPerSecond*t.share.bytesShare, opt.ChunkBytes)
	t.openLimit = limit(opt.MaxOpensPerSecond*t.share.opensShare, 1)
	t.buffers.New = func() any { return make([]byte, opt.ChunkBytes) }
	t.ctx, t.stop = context.WithCancelCause(ctx)
	return t
}

// run transfers until this rank has all that it was missing, and the others have what this one
// reads. Errors: ctx's cause.
func (t *transfer) run() error {
	t.work.Add(1)
	for i := range t.s.plan.Items {
		if t.s.plan.Items[i].Kind == Regular && t.s.own.Need.has(i) {
			t.work.Add(1)
		}
	}
	t.mu.Lock() // frames that are here already wait until calls is set
	t.calls = ranks.NewCalls(t.s.mux, kindHead, t.announced)
	t.mu.Unlock()
	var writing sync.WaitGroup
	for range t.s.opt.Writers {
		writing.Go(func() { t.write(t.ctx) })
	}
	go func() {
		t.readAll()
		t.work.Done()
		t.work.Wait()
		t.stop(errOver)
	}()
	<-t.ctx.Done() // readers may hang in storage: they are abandoned, and write nothing
	writing.Wait()
	if cause := context.Cause(t.ctx); !errors.Is(cause, errOver) {
		return cause
	}
	return nil
}

// errOver ends a transfer that has done all its work.
var errOver = errors.New("all is copied")

// settleItem counts an item that is placed, or could not be read for a reason. An error is the
// destination's, and ends staging.
func (t *transfer) settleItem(item *Item, reason string, err error) {
	switch {
	case err != nil:
		t.stop(t.s.dest.cannotWrite(err))
	case reason != "":
		t.mu.Lock()
		t.s.failures = append(t.s.failures, Failure{item.Path, t.s.mux.Rank(), reason})
		t.mu.Unlock()
	default:
		atomic.AddInt64(&t.s.counts.Copied, 1)
		atomic.AddInt64(&t.s.counts.Bytes, item.Size)
	}
	t.work.Done()
}

// newFrame waits for a buffer for reading; it returns nil when ctx ends.
func (t *transfer) newFrame(ctx context.Context, chain []int32) *frame {
	if t.own.Acquire(ctx, 1) != nil {
		return nil
	}
	t.work.Add(1)
	return &frame{
		head: head{Origin: int32(t.s.mux.Rank()), Chain: chain}, buf: t.buffers.Get().([]byte),
		release: func() { t.own.Release(1) },
	}
}

// dispatch writes a frame here and forwards it.
func (t *transfer) dispatch(f *frame) {
	f.uses.Store(1)
	if len(f.Chain) > 0 {
		f.uses.Store(3) // written, sent, acknowledged
		t.forward(f)
	}
	t.writes <- f // has room for all buffers
}

// used ends a use of a frame, and releases it after the last.
func (t *transfer) used(f *frame) {
	if f.uses.Add(-1) == 0 {
		t.buffers.Put(f.buf) //nolint:staticcheck // its header is small beside a chunk
		f.release()
		t.work.Done()
	}
}

// forward sends a frame to the next rank of its chain. It does not wait.
func (t *transfer) forward(f *frame) {
	next := int(f.Chain[0])
	h := f.head
	h.Chain = f.Chain[1:]
	if next < t.s.mux.Rank() {
		h.Class = 1
	}
	t.mu.Lock()
	h.Ticket = t.sent[next]
	t.sent[next]++
	t.mu.Unlock()
	gone := func(err error) {
		if err != nil {
			t.stop(err)
			return
		}
		t.used(f)
	}
	t.s.mux.Put(next, h.Ticket, f.sent(), gone)
	go func() {
		_, err := t.calls.Call(t.ctx, next, ranks.Encode(&h))
		gone(err)
	}()
}

// announced handles the announcement of a frame.
func (t *transfer) announced(from int, body []byte, reply func([]byte, error)) {
	a := arrival{from: from, reply: reply}
	if err := ranks.Decode(body, &a.head); err != nil {
		t.stop(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[a.Class] = append(t.waiting[a.Class], a)
	t.pump(a.Class)
}

// pump accepts waiting frames while there are buffers, and takes turns among the ranks that read
// them: otherwise the neighbour's own frames would fill all buffers, and the links would wait for
// each other (1.7 times the time, measured with 4 ranks). t.mu is held.
func (t *transfer) pump(class uint8) {
	for len(t.waiting[class]) > 0 && t.room[class] > 0 {
		t.room[class]--
		next := 0 // the oldest from the rank that was served least
		for i, a := range t.waiting[class] {
			if t.served[class][a.Origin] < t.served[class][t.waiting[class][next].Origin] {
				next = i
			}
		}
		a := t.waiting[class][next]
		t.served[class][a.Origin]++
		t.waiting[class] = slices.Delete(t.waiting[class], next, next+1)
		t.take(a)
	}
}

// take receives one frame.
func (t *transfer) take(a arrival) {
	t.work.Add(1)
	f := &frame{head: a.head, buf: t.buffers.Get().([]byte)}
	f.release = func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.room[a.Class]++
		t.pump(a.Class)
	}
	t.s.mux.Take(a.from, a.Ticket, f.sent(), func(err error) {
		if err != nil {
			t.stop(err)
			return
		}
		a.reply(nil, nil)
		t.dispatch(f)
	})
}
