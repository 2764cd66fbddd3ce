package mpicache

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"rankpool/mpicache/stats"
	"rankpool/scheduler"
)

// The door's protocol, version 2, is specified in docs/wire/README.md, whose names are used here.
const (
	ProtocolVersion = 2
	hello           = "rankpool"
	frameHeadBytes  = 12
	maxReplyBytes   = 256 << 20
	tallyBytes      = 64
	// ControlTrainer is the trainer number of a connection that trains nothing, such as the
	// launcher's.
	ControlTrainer = math.MaxUint32
)

// Kind is a frame's kind. A reply has its request's kind + replyTo.
type Kind uint16

// The kinds of frames.
const (
	KindHello    Kind = 1
	KindOpen     Kind = 2
	KindPlan     Kind = 3
	KindGet      Kind = 4
	KindReport   Kind = 5
	KindRelease  Kind = 6
	KindMetric   Kind = 7
	KindSave     Kind = 8
	KindStatus   Kind = 9
	KindShutdown Kind = 10
	KindWarm     Kind = 11
	KindError    Kind = 99
	replyTo      Kind = 100
)

// Codes of error replies.
const (
	codeProtocol = 1
	codeRequest  = 2
	codeNotReady = 3
	codeStopping = 4
	codeBegun    = 5
)

var le = binary.LittleEndian

// errFrame is wrapped by every error about bytes that are not a frame of this protocol.
var errFrame = errors.New("not a frame of rankpool's protocol")

// appendFrame appends a frame's head; the payload's length is put in by endFrame.
func appendFrame(b []byte, kind Kind, ticket uint32) []byte {
	b = le.AppendUint32(b, 0)
	b = le.AppendUint16(b, uint16(kind))
	b = le.AppendUint16(b, 0)
	return le.AppendUint32(b, ticket)
}

// endFrame writes the length of the frame that begins at start and ends with b.
func endFrame(b []byte, start int) []byte {
	le.PutUint32(b[start:], uint32(len(b)-start-frameHeadBytes))
	return b
}

// frame is one frame; its payload is valid until the next readFrame with the same buffer.
type frame struct {
	kind    Kind
	ticket  uint32
	payload []byte
}

// readFrame reads a frame, with its payload in buf, which grows as needed. limit returns how many
// bytes a payload of a kind may have; false if there is no such kind.
func readFrame(r io.Reader, buf *[]byte, limit func(Kind) (bytes int, ok bool)) (frame, error) {
	var head [frameHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	n, f := le.Uint32(head[:]), frame{kind: Kind(le.Uint16(head[4:])), ticket: le.Uint32(head[8:])}
	most, ok := limit(f.kind)
	if !ok {
		return frame{}, fmt.Errorf("mpicache: a frame of kind %d: %w", f.kind, errFrame)
	}
	if uint64(n) > uint64(most) {
		return frame{}, fmt.Errorf(
			"mpicache: a frame of kind %d with %d bytes, where %d are the most: %w", f.kind, n,
			most, errFrame)
	}
	if _, err := f.fill(r, buf, int(n)); err != nil {
		return frame{}, err
	}
	return f, nil
}

// fill reads the payload piece by piece, so that a lying length costs no memory.
func (f *frame) fill(r io.Reader, buf *[]byte, n int) (int, error) {
	const piece = 1 << 20
	*buf = (*buf)[:0]
	for len(*buf) < n {
		have, want := len(*buf), min(n-len(*buf), piece)
		for cap(*buf) < have+want {
			*buf = append((*buf)[:cap(*buf)], 0)
		}
		*buf = (*buf)[:have+want]
		if _, err := io.ReadFull(r, (*buf)[have:]); err != nil {
			return have, err
		}
	}
	f.payload = *buf
	return n, nil
}

// cursor reads a payload's fields; after the first one that is missing all are zero and err is set.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n int) []byte {
	if c.err != nil || n < 0 || n > len(c.b) {
		c.err = errFrame
		return make([]byte, max(0, min(n, 8)))
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u16() uint16 { return le.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return le.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return le.Uint64(c.take(8)) }

// list returns n numbers of four bytes; n is checked against what is there.
func (c *cursor) list(n uint32) []byte {
	if uint64(n)*4 > uint64(len(c.b)) {
		c.err = errFrame
		return nil
	}
	return c.take(int(n) * 4)
}

func (c *cursor) u32s(dst []uint32, n uint32) []uint32 {
	b := c.list(n)
	for i := 0; i+4 <= len(b); i += 4 {
		dst = append(dst, le.Uint32(b[i:]))
	}
	return dst
}

func (c *cursor) f32s(n uint32) []float32 {
	b := c.list(n)
	dst := make([]float32, 0, len(b)/4)
	for i := 0; i+4 <= len(b); i += 4 {
		dst = append(dst, math.Float32frombits(le.Uint32(b[i:])))
	}
	return dst
}

func (c *cursor) ids(n uint32) []scheduler.SampleID {
	b := c.list(n)
	dst := make([]scheduler.SampleID, 0, len(b)/4)
	for i := 0; i+4 <= len(b); i += 4 {
		dst = append(dst, scheduler.SampleID(le.Uint32(b[i:])))
	}
	return dst
}

// end returns the error of the fields read, or of bytes that are left over.
func (c *cursor) end() error {
	if c.err == nil && len(c.b) > 0 {
		c.err = errFrame
	}
	return c.err
}

// helloFrame is HELLO's payload.
type helloFrame struct {
	version         uint16
	trainer, world  uint32
	worker          uint64
	process, family uint64
}

func parseHello(p []byte) (helloFrame, error) {
	c := cursor{b: p}
	if string(c.take(len(hello))) != hello {
		return helloFrame{}, errFrame
	}
	h := helloFrame{version: c.u16()}
	if h.version != ProtocolVersion {
		return h, c.err // what follows may differ
	}
	c.u16()
	h.trainer, h.world, h.worker = c.u32(), c.u32(), c.u64()
	h.process, h.family = c.u64(), c.u64()
	return h, c.end()
}

// appendHello appends the HELLO frame that opens a connection.
func appendHello(b []byte, ticket uint32, h helloFrame) []byte {
	start := len(b)
	b = append(appendFrame(b, KindHello, ticket), hello...)
	b = le.AppendUint16(b, h.version)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, h.trainer)
	b = le.AppendUint32(b, h.world)
	for _, v := range []uint64{h.worker, h.process, h.family} {
		b = le.AppendUint64(b, v)
	}
	return endFrame(b, start)
}

// AppendBare appends a frame without payload, such as STATUS and SHUTDOWN.
func AppendBare(b []byte, kind Kind, ticket uint32) []byte {
	return endFrame(appendFrame(b, kind, ticket), len(b))
}

// getFrame is GET's payload, and RELEASE's with only leases and tally.
type getFrame struct {
	stream, epoch, batch uint32
	leases               []uint32
	tally                tally
}

func parseGet(p []byte, leases []uint32) (getFrame, error) {
	c := cursor{b: p}
	g := getFrame{stream: c.u32(), epoch: c.u32(), batch: c.u32()}
	g.leases = c.u32s(leases[:0], c.u32())
	g.tally = c.tally()
	return g, c.end()
}

func parseRelease(p []byte, leases []uint32) (getFrame, error) {
	c := cursor{b: p}
	g := getFrame{}
	g.leases = c.u32s(leases[:0], c.u32())
	g.tally = c.tally()
	return g, c.end()
}

// tally is what a worker has counted in an epoch so far; of its counts, those on the wire.
type tally struct {
	stream, epoch uint32
	counts        stats.Counts
}

func (c *cursor) tally() tally {
	t := tally{stream: c.u32(), epoch: c.u32()}
	for i := stats.HitsLocal; i <= stats.SubstituteReads; i++ {
		t.counts[i] = int64(c.u32())
	}
	for i := stats.StorageBytes; i <= stats.TrainSeconds; i++ {
		t.counts[i] = int64(min(c.u64(), math.MaxInt64))
	}
	return t
}

// reportFrame is REPORT's payload.
type reportFrame struct {
	stream, epoch, batch uint32
	losses               []float32
	embeddings           []float32 // of dimensions numbers each, one after the other
	dimensions           uint32    // 0: there are none
}

func parseReport(p []byte) (reportFrame, error) {
	c := cursor{b: p}
	r := reportFrame{stream: c.u32(), epoch: c.u32(), batch: c.u32()}
	n := c.u32()
	r.losses = c.f32s(n)
	if len(c.b) == 0 {
		return r, c.end()
	}
	r.dimensions = c.u32()
	if uint64(n)*uint64(r.dimensions) > uint64(len(c.b)) {
		return r, errFrame
	}
	r.embeddings = c.f32s(n * r.dimensions)
	return r, c.end()
}

// placeFrame is the payload of PLAN and SAVE: a batch of an epoch.
type placeFrame struct{ stream, epoch, batch uint32 }

func parsePlace(p []byte) (placeFrame, error) {
	c := cursor{b: p}
	return placeFrame{stream: c.u32(), epoch: c.u32(), batch: c.u32()}, c.end()
}

// metricFrame is METRIC's payload, JSON.
type metricFrame struct {
	Stream, Epoch uint32
	Name          string
	Value         float64
}

// warmFrame is WARM's payload.
type warmFrame struct {
	stream uint32
	ids    []scheduler.SampleID
}

func parseWarm(p []byte) (warmFrame, error) {
	c := cursor{b: p}
	w := warmFrame{stream: c.u32()}
	w.ids = c.ids(c.u32())
	return w, c.end()
}

// appendJSON appends a frame whose payload is v as JSON; v must be encodable.
func appendJSON(b []byte, kind Kind, ticket uint32, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("mpicache: a reply is not JSON: " + err.Error())
	}
	start := len(b)
	return endFrame(append(appendFrame(b, kind, ticket), text...), start)
}

// appendError appends an error reply.
func appendError(b []byte, ticket uint32, code uint16, sentence string) []byte {
	start := len(b)
	b = appendFrame(b, KindError, ticket)
	b = le.AppendUint16(b, code)
	b = le.AppendUint16(b, 0)
	return endFrame(append(b, sentence...), start)
}

// batchEntry is one sample of a BATCH reply.
type batchEntry struct {
	id, label, length uint32
	offset            uint64
	source            scheduler.Source
	substitute        bool // served in the place of another sample
}

// substituteBit marks, in the source of a sample, that it is served instead of another one.
const substituteBit = 0x80

// appendBatch appends the reply to GET.
func appendBatch(b []byte, ticket, lease uint32, entries []batchEntry, errs map[int]error) []byte {
	start := len(b)
	b = appendFrame(b, KindGet+replyTo, ticket)
	b = le.AppendUint32(b, lease)
	b = le.AppendUint32(b, uint32(len(entries)))
	for i := range entries {
		b = le.AppendUint32(b, entries[i].id)
	}
	for i := range entries {
		b = le.AppendUint32(b, entries[i].label)
	}
	for i := range entries {
		b = le.AppendUint32(b, entries[i].length)
	}
	if len(entries)%2 == 1 {
		b = le.AppendUint32(b, 0)
	}
	for i := range entries {
		b = le.AppendUint64(b, entries[i].offset)
	}
	for i := range entries {
		source := byte(entries[i].source)
		if entries[i].substitute {
			source |= substituteBit
		}
		b = append(b, source)
	}
	b = le.AppendUint32(b, uint32(len(errs)))
	for i := range entries {
		if err := errs[i]; err != nil {
			text := err.Error()
			b = le.AppendUint32(b, uint32(i))
			b = le.AppendUint32(b, uint32(len(text)))
			b = append(b, text...)
		}
	}
	return endFrame(b, start)
}

// Flags of the reply to PLAN: which columns follow the ids.
const (
	planWeights = 1 << iota
	planRepeats
	planSource
	planEvaluated
)

// planFrame yields the reply to PLAN, in pieces: the trainer's part of every batch, and, if the
// plan was made from scores, their digest and file. A piece is valid until the next one.
func planFrame(
	ticket uint32, p *scheduler.Plan, trainer int, source scheduler.Digest, path string,
) iter.Seq[[]byte] {
	flags, columns, behind := uint32(0), 1, []byte(nil)
	if p.Weighted() {
		flags, columns = flags|planWeights, columns+1
	}
	for k := range p.Repeats(trainer) {
		if k > 0 {
			flags, columns = flags|planRepeats, columns+1
			break
		}
	}
	if e := p.Evaluated(); e.N > 0 {
		flags |= planEvaluated
		behind = le.AppendUint32(le.AppendUint32(behind, uint32(e.First)), uint32(e.N))
	}
	if source != "" {
		flags |= planSource
		digest, err := hex.DecodeString(string(source))
		if err != nil {
			panic("mpicache: a digest is " + string(source))
		}
		behind = append(append(behind, digest...), path...)
	}
	return func(yield func([]byte) bool) {
		const planHeadBytes = 16
		b := appendFrame(make([]byte, 0, pieceBytes), KindPlan+replyTo, ticket)
		le.PutUint32(b, uint32(planHeadBytes+4*(p.Batches()+columns*p.DrawsOf(trainer))+len(behind)))
		for _, v := range []int{p.Epoch, p.Batches(), len(p.IDs), int(flags)} {
			b = le.AppendUint32(b, uint32(v))
		}
		for v := range planColumns(p, trainer, flags) {
			if b = le.AppendUint32(b, v); len(b) > pieceBytes-4 {
				if !yield(b) {
					return
				}
				b = b[:0]
			}
		}
		yield(append(b, behind...))
	}
}

// pieceBytes is the most of a plan's frame that is in memory at a time, but for what is behind its
// columns.
const pieceBytes = 64 << 10

// planColumns yields the lengths of the trainer's part of every batch, and what flags say of its
// draws.
func planColumns(p *scheduler.Plan, trainer int, flags uint32) iter.Seq[uint32] {
	draws := func(yield func(uint32) bool, of func(scheduler.SampleID) uint32) bool {
		for i, id := range p.IDs {
			if int(p.Consumer[i]) == trainer && !yield(of(id)) {
				return false
			}
		}
		return true
	}
	return func(yield func(uint32) bool) {
		for i := range p.Batches() {
			if !yield(uint32(p.PartLen(i, trainer))) {
				return
			}
		}
		ids := func(id scheduler.SampleID) uint32 { return uint32(id) }
		weight := func(id scheduler.SampleID) uint32 { return math.Float32bits(p.Weight(id)) }
		if !draws(yield, ids) || flags&planWeights != 0 && !draws(yield, weight) ||
			flags&planRepeats == 0 {
			return
		}
		p.Repeats(trainer)(yield)
	}
}
