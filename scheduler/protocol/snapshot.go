package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"rankpool/scheduler/draw"
)

// Snapshot is the state from which a ledger can be restored: the scores that an epoch's plan was
// made from, and the reports that are not included in them yet. Except for the consumers of the
// tail, it does not depend on the number of ranks or trainers.
type Snapshot struct {
	Stream     StreamID
	Checkpoint bool // it was saved for a checkpoint
	Epoch      int
	Scores     []float32 // from which Epoch's plan was made
	Losses     []float32 // reported in Epoch, by place in its draws; NaN: none
	Final      int       // batches of Epoch below are final for every trainer

	TailEpoch    int             // the epoch before
	TailBatch    int             // its cut: batches from here on are not in Scores
	TailDraws    int             // draws of the whole of it
	TailIDs      []draw.SampleID // draws from TailBatch on
	TailConsumer []uint16        // trainer of each
	TailLosses   []float32

	// Embeddings and TailEmbeddings were reported with Losses and TailLosses: one of Stream.Embeddings
	// numbers for each loss. Embeddings are those of Final batches.
	Embeddings, TailEmbeddings []float32

	// Cuts are the scores that the plans of earlier epochs were made from, in order, if a system's
	// choices depend on all of them.
	Cuts []Cut
	// Learned is what Epoch's plan was made from besides Scores, see Learner; nil: nothing.
	Learned Learned

	draws int // final length of Losses; missing entries are NaN
}

// Cut has the scores that an epoch's plan was made from, one a sample.
type Cut struct {
	Epoch  int
	Scores []float32
}

// StreamID identifies a stream of batches: with the same StreamID and the same losses, training
// gets the same batches.
type StreamID struct {
	Data            string // the data set's name, for messages only
	Identity        string // the data set's digest
	Samples         int
	Sampler, Scorer string
	Options         string // of sampler and policy, as text; "": none
	Seed            int64
	Batch           int // draws in a global batch
	DropLast        bool
	SamplerDropLast bool
	Embeddings      int `json:",omitempty"` // numbers in the embedding of a draw; 0: none
	Plan            int // plan.Version of the rankpool that makes it
}

// Differs describes the first field in which other differs, with both values; "" if the streams are
// the same.
func (id StreamID) Differs(other StreamID) string {
	f := unequal([]field{
		{"plan version", id.Plan, other.Plan},
		{"samples", id.Samples, other.Samples},
		{"data set", id.Identity, other.Identity},
		{"sampler", id.Sampler, other.Sampler},
		{"scorer", id.Scorer, other.Scorer},
		{"options (--system)", id.Options, other.Options},
		{"seed", id.Seed, other.Seed},
		{"global batch", id.Batch, other.Batch},
		{"drop_last", id.DropLast, other.DropLast},
		{"embeddings", id.Embeddings, other.Embeddings},
		{"sampler_drop_last", id.SamplerDropLast, other.SamplerDropLast},
	})
	if f.name == "" {
		return ""
	}
	return fmt.Sprintf("its %s is %v, and that of this training %v", f.name, f.b, f.a)
}

// ErrSnapshot is returned for bytes that are not a complete snapshot.
var ErrSnapshot = errors.New("scheduler: not a whole importance state")

var errOlderSnapshot = fmt.Errorf("%w of this version: an older rankpool wrote it, with which its "+
	"training must continue", ErrSnapshot)

// maxEmbedding bounds the length of an embedding in a decoded snapshot; the door's limit is lower.
const maxEmbedding = 1 << 20

const (
	snapshotMagic    = "rpstate2"
	oldSnapshotMagic = "rpstate1" // without the data set's identity, the scorer and what is dropped
)

// snapshotHead is the part of a snapshot that is not an array, with the arrays' lengths.
type snapshotHead struct {
	Stream                          StreamID
	Checkpoint                      bool
	Epoch, Final                    int
	TailEpoch, TailBatch, TailDraws int
	NumScores, NumLosses, NumTail   int
	// numbers in them, after the tail
	NumEmbeddings, NumTailEmbeddings int `json:",omitempty"`
	// each with NumScores scores, after the embeddings
	CutEpochs  []int `json:",omitempty"`
	NumLearned int   `json:",omitempty"` // bytes, after all else
}

func (s *Snapshot) head() snapshotHead {
	h := snapshotHead{
		Stream: s.Stream, Checkpoint: s.Checkpoint, Epoch: s.Epoch, Final: s.Final,
		TailEpoch: s.TailEpoch, TailBatch: s.TailBatch, TailDraws: s.TailDraws,
		NumScores: len(s.Scores), NumLosses: max(s.draws, len(s.Losses)), NumTail: len(s.TailIDs),
		NumEmbeddings: len(s.Embeddings), NumTailEmbeddings: len(s.TailEmbeddings),
		NumLearned: len(s.Learned.bytes()),
	}
	for _, cut := range s.Cuts {
		h.CutEpochs = append(h.CutEpochs, cut.Epoch)
	}
	return h
}

func (h snapshotHead) json() []byte {
	text, err := json.Marshal(h)
	if err != nil {
		panic("scheduler: a snapshot's head: " + err.Error())
	}
	return text
}

// Encode returns the snapshot in the format of Encoded.
func (s *Snapshot) Encode() []byte {
	var b []byte
	for piece := range s.Encoded() {
		b = append(b, piece...)
	}
	return b
}

// Encoded yields the snapshot as bytes, in pieces of at most 64 KiB: magic, length of the head, the
// head as JSON, the arrays, a CRC-32. A piece is valid until the next one.
func (s *Snapshot) Encoded() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		h := s.head()
		head := h.json()
		e := newEncoder(yield)
		e.bytes([]byte(snapshotMagic))
		e.words(1, func(int) uint32 { return uint32(len(head)) })
		e.bytes(head)
		e.floats(s.Scores)
		e.floats(s.Losses)
		e.words(h.NumLosses-len(s.Losses), func(int) uint32 { return quietNaN })
		e.words(len(s.TailIDs), func(i int) uint32 { return uint32(s.TailIDs[i]) })
		for _, consumer := range s.TailConsumer {
			e.bytes([]byte{byte(consumer), byte(consumer >> 8)})
		}
		e.floats(s.TailLosses)
		e.floats(s.Embeddings)
		e.floats(s.TailEmbeddings)
		for _, cut := range s.Cuts {
			e.floats(cut.Scores)
		}
		e.bytes(s.Learned.bytes())
		e.flush()
		sum := e.sum
		e.words(1, func(int) uint32 { return sum })
		e.flush()
	}
}

// encoder yields its input as little-endian bytes, one full buffer at a time.
type encoder struct {
	yield  func([]byte) bool
	buffer []byte
	sum    uint32 // CRC-32 of what was yielded
	ended  bool   // the reader wants no more
}

func newEncoder(yield func([]byte) bool) *encoder {
	return &encoder{yield: yield, buffer: make([]byte, 0, pieceBytes)}
}

func (e *encoder) floats(values []float32) {
	e.words(len(values), func(i int) uint32 { return math.Float32bits(values[i]) })
}

// hashable is floats with one pattern for all NaNs.
func (e *encoder) hashable(values []float32) {
	e.words(len(values), func(i int) uint32 {
		if v := values[i]; v == v {
			return math.Float32bits(v)
		}
		return quietNaN
	})
}

func (e *encoder) words(n int, word func(i int) uint32) {
	for at := 0; at < n; {
		b := e.room(n - at)
		for i := range len(b) / 4 {
			binary.LittleEndian.PutUint32(b[4*i:], word(at+i))
		}
		at += len(b) / 4
	}
}

// room adds bytes for n words to the buffer, or for as many as it has room for, at least one.
func (e *encoder) room(n int) []byte {
	if cap(e.buffer)-len(e.buffer) < 4 {
		e.flush()
	}
	at := len(e.buffer)
	n = min(n, (cap(e.buffer)-at)/4)
	e.buffer = e.buffer[:at+4*n]
	return e.buffer[at:]
}

func (e *encoder) bytes(b []byte) {
	for len(b) > 0 {
		n := min(len(b), cap(e.buffer)-len(e.buffer))
		e.buffer, b = append(e.buffer, b[:n]...), b[n:]
		if len(e.buffer) == cap(e.buffer) {
			e.flush()
		}
	}
}

func (e *encoder) flush() {
	if len(e.buffer) > 0 && !e.ended {
		e.sum = crc32.Update(e.sum, crc32.IEEETable, e.buffer)
		e.ended = !e.yield(e.buffer)
	}
	e.buffer = e.buffer[:0]
}

// DecodeSnapshot is the inverse of Encode. It returns ErrSnapshot, wrapped, for anything else.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	h, body, err := decodeHead(data)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		Stream: h.Stream, Checkpoint: h.Checkpoint, Epoch: h.Epoch, Final: h.Final,
		TailEpoch: h.TailEpoch, TailBatch: h.TailBatch, TailDraws: h.TailDraws,
		Scores: make([]float32, h.NumScores), Losses: make([]float32, h.NumLosses),
		TailIDs: make([]draw.SampleID, h.NumTail), TailConsumer: make([]uint16, h.NumTail),
		TailLosses:     make([]float32, h.NumTail),
		Embeddings:     make([]float32, h.NumEmbeddings),
		TailEmbeddings: make([]float32, h.NumTailEmbeddings),
	}
	arrays := []any{
		s.Scores, s.Losses, s.TailIDs, s.TailConsumer, s.TailLosses, s.Embeddings, s.TailEmbeddings,
	}
	for _, epoch := range h.CutEpochs {
		cut := Cut{epoch, make([]float32, h.NumScores)}
		s.Cuts, arrays = append(s.Cuts, cut), append(arrays, cut.Scores)
	}
	r := bytes.NewReader(body)
	for _, v := range arrays {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	if h.NumLearned > 0 {
		s.Learned = Known(slices.Clone(body[len(body)-h.NumLearned:]))
	}
	return s, nil
}

// decodeHead returns the head of an encoded snapshot, and the arrays, which have the lengths given
// in the head.
func decodeHead(data []byte) (h snapshotHead, arrays []byte, err error) {
	if bytes.HasPrefix(data, []byte(oldSnapshotMagic)) {
		return h, nil, errOlderSnapshot
	}
	if len(data) < len(snapshotMagic)+8 || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return h, nil, ErrSnapshot
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return h, nil, fmt.Errorf("%w: the checksum differs", ErrSnapshot)
	}
	body = body[len(snapshotMagic):]
	n := binary.LittleEndian.Uint32(body)
	if uint64(n)+4 > uint64(len(body)) {
		return h, nil, ErrSnapshot
	}
	if err := json.Unmarshal(body[4:4+n], &h); err != nil {
		return h, nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	body = body[4+n:]
	if !h.fits(len(body)) {
		return h, nil, ErrSnapshot
	}
	return h, body, nil
}

// fits reports whether the lengths are valid and the arrays take the given number of bytes.
func (h snapshotHead) fits(bytes int) bool {
	for _, n := range []int{
		h.NumScores, h.NumLosses, h.NumTail, h.NumEmbeddings, h.NumTailEmbeddings,
	} {
		if n < 0 || n > bytes/4 {
			return false
		}
	}
	if len(h.CutEpochs) > bytes || h.NumLearned < 0 ||
		4*(h.NumScores*(1+len(h.CutEpochs))+h.NumLosses+h.NumEmbeddings+h.NumTailEmbeddings)+
			10*h.NumTail+h.NumLearned != bytes {
		return false
	}
	d := h.Stream.Embeddings
	return d >= 0 && d <= maxEmbedding && h.NumTailEmbeddings == d*h.NumTail &&
		h.NumEmbeddings <= d*h.NumLosses
}

// sourceDigest returns the digest of the scores that the plan of a snapshot's epoch is made from.
func sourceDigest(stream StreamID, s *Snapshot) Digest {
	return (&Snapshot{Stream: stream, Epoch: s.Epoch, Scores: s.Scores}).Digest()
}

// Digest is a hash of scores or of a snapshot, in hexadecimal; "" if there are none.
type Digest string

// Digest returns the digest of everything that a training depends on when it resumes from the
// snapshot. It does not include who consumed the tail, the name of the data set, or what the
// snapshot was saved for: which samples make a batch does not depend on that.
func (s *Snapshot) Digest() Digest {
	return digestOf(func(e *encoder) {
		head := s.head()
		head.Stream.Data, head.Checkpoint = "", false
		e.bytes(head.json())
		e.hashable(s.Scores)
		e.hashable(s.Losses)
		e.words(head.NumLosses-len(s.Losses), func(int) uint32 { return quietNaN })
		e.hashable(s.TailLosses)
		e.hashable(s.Embeddings)
		e.hashable(s.TailEmbeddings)
		for _, cut := range s.Cuts {
			e.hashable(cut.Scores)
		}
		e.words(len(s.TailIDs), func(i int) uint32 { return uint32(s.TailIDs[i]) })
		e.bytes(s.Learned.bytes())
	})
}

// digestOf returns the digest of what is encoded.
func digestOf(encode func(e *encoder)) Digest {
	h := xxh3.New()
	e := newEncoder(func(piece []byte) bool {
		_, _ = h.Write(piece) // a hash returns no error
		return true
	})
	encode(e)
	e.flush()
	sum := h.Sum128().Bytes()
	return Digest(hex.EncodeToString(sum[:]))
}

const (
	pieceBytes = 64 << 10
	quietNaN   = 0x7fc00000 // one pattern for all NaNs
)

// Snapshot returns the state of training before batch upTo of the newest epoch, without reports of
// later batches. planScores are the scores that the newest epoch's plan was made from. The caller
// fills in Stream. All losses before upTo must be final: the snapshot shares them with the ledger.
func (l *Ledger) Snapshot(planScores []float32, upTo int) *Snapshot {
	s := &Snapshot{Scores: planScores}
	if len(l.passes) == 0 {
		return s
	}
	p := l.passes[len(l.passes)-1]
	upTo = min(upTo, p.batches())
	s.Epoch, s.Final = p.epoch, min(upTo, p.final0())
	if upTo > 0 {
		n := min(upTo*p.batch, p.draws)
		s.Losses, s.draws = p.losses[:n:n], p.draws
		n *= l.dimensions
		s.Embeddings = p.embeddings[:n:n]
	}
	if len(l.passes) > 1 {
		s.setTail(l.passes[len(l.passes)-2], l.dimensions)
	}
	return s
}

// SnapshotNext returns the state of training at the beginning of the epoch after the newest, which
// is not open yet; planScores are the scores that Take has returned for it. The caller fills in
// Stream.
func (l *Ledger) SnapshotNext(planScores []float32) *Snapshot {
	p := l.passes[len(l.passes)-1]
	s := &Snapshot{Epoch: p.epoch + 1, Scores: planScores}
	s.setTail(p, l.dimensions)
	return s
}

func (s *Snapshot) setTail(t *pass, dimensions int) {
	lo := t.behindCut()
	if lo == len(t.ids) {
		return // drop a short epoch: a restored ledger does not know it
	}
	s.TailEpoch, s.TailBatch, s.TailDraws = t.epoch, t.cut, t.draws
	s.TailIDs, s.TailConsumer, s.TailLosses = t.ids[lo:], t.consumer[lo:], t.losses[lo:]
	s.TailEmbeddings = t.embeddings[lo*dimensions:]
	if t.final0() < t.batches() { // reports may still come
		s.TailLosses = slices.Clone(s.TailLosses)
		s.TailEmbeddings = slices.Clone(s.TailEmbeddings)
	}
}

// newest returns the epoch that was opened last, noEpoch if none was.
func (l *Ledger) newest() int {
	if len(l.passes) == 0 {
		return noEpoch
	}
	return l.passes[len(l.passes)-1].epoch
}

// final0 returns the number of batches that are final for every trainer.
func (p *pass) final0() int { return min(p.batches(), int(slices.Min(p.final))) }

// Final returns the number of batches of epoch that are final for every trainer.
func (l *Ledger) Final(epoch int) int {
	if p := l.find(epoch); p != nil {
		return p.final0()
	}
	return 0
}

// RestoreLedger returns a ledger in the state in which the snapshot's plan was made: it has the
// plan's scores, and its only open epoch is the tail. If sameTrainers is true, the tail's missing
// reports may still arrive; otherwise they count as never made. The caller opens Epoch with Open,
// and then restores its losses with Resume.
func RestoreLedger(scorer Scorer, s *Snapshot, trainers int, sameTrainers bool) *Ledger {
	l := NewLedger(scorer, slices.Clone(s.Scores))
	l.Embed(s.Stream.Embeddings)
	if len(s.TailIDs) == 0 {
		return l
	}
	t := &pass{
		epoch: s.TailEpoch, ids: s.TailIDs, consumer: s.TailConsumer,
		losses:     slices.Clone(s.TailLosses),
		embeddings: slices.Clone(s.TailEmbeddings),
		start:      s.TailBatch * s.Stream.Batch, batch: s.Stream.Batch, draws: s.TailDraws,
		cut: s.TailBatch, taken: true,
		final: make([]int32, trainers), folded: s.TailBatch,
	}
	for i := range t.final {
		t.final[i] = int32(t.batches())
		if sameTrainers {
			t.final[i] = int32(s.TailBatch)
		}
	}
	l.passes = []*pass{t}
	return l
}

// Resume gives the newest epoch the snapshot's losses of the batches before upTo; these are final.
func (l *Ledger) Resume(s *Snapshot, upTo int) {
	p := l.find(s.Epoch)
	if p == nil || len(p.losses) != len(s.Losses) {
		return
	}
	upTo = min(upTo, s.Final)
	n := min(upTo*p.batch, len(p.losses))
	copy(p.losses, s.Losses[:n])
	copy(p.embeddings, s.Embeddings[:min(n*l.dimensions, len(s.Embeddings))])
	for t := range p.final {
		p.final[t] = max(p.final[t], int32(upTo))
	}
}

// FoldAll folds every report, final or not, and closes all epochs: the scores for a training that
// starts over.
func (l *Ledger) FoldAll() []float32 {
	for _, p := range l.passes {
		l.foldPass(p, true, nil)
	}
	l.passes = nil
	return l.scores
}
