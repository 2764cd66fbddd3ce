package scheduler

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// Snapshot is what a ledger needs to go on: the scores that an epoch's plan was made from, and the reports that
// are not in them yet. It does not depend on the number of ranks or trainers, but for the consumers of the tail.
type Snapshot struct {
	Plan    int    // PlanVersion of the rankpool that made it
	Data    string // the data set's name
	Sampler string
	Options string // of sampler and policy, as text; "": none
	Seed    int64
	Batch   int // draws in a global batch
	Epoch   int
	Scores  []float32 // that Epoch's plan was made from
	Losses  []float32 // reported in Epoch, by place in its draws; NaN: none
	Final   int       // batches of Epoch below are final for every trainer

	TailEpoch    int        // the epoch before
	TailBatch    int        // its cut: batches from here on are not in Scores
	TailDraws    int        // draws of the whole of it
	TailIDs      []SampleID // draws from TailBatch on
	TailConsumer []uint16   // trainer of each
	TailLosses   []float32
}

// ErrSnapshot is returned for bytes that are no whole snapshot.
var ErrSnapshot = errors.New("scheduler: not a whole importance state")

// PlanVersion grows when the same sampler, seed and scores come to give other draws, or the same in another order: a training that
// goes on with another version would not see the stream that it began with. TestPlansOfThisVersion has what they are.
const PlanVersion = 1

const snapshotMagic = "rpstate1"

// snapshotHead is the part of a snapshot that is no array, with the arrays' lengths.
type snapshotHead struct {
	Plan                            int `json:",omitempty"` // 0, in files of old: 1
	Data, Sampler                   string
	Options                         string `json:",omitempty"`
	Seed                            int64
	Batch, Epoch, Final             int
	TailEpoch, TailBatch, TailDraws int
	NumScores, NumLosses, NumTail   int
}

// Encode returns the snapshot as bytes: magic, length of the head, the head as JSON, the arrays, a CRC-32.
func (s *Snapshot) Encode() []byte {
	head, err := json.Marshal(snapshotHead{
		Plan: s.Plan, Data: s.Data, Sampler: s.Sampler, Options: s.Options, Seed: s.Seed, Batch: s.Batch, Epoch: s.Epoch, Final: s.Final,
		TailEpoch: s.TailEpoch, TailBatch: s.TailBatch, TailDraws: s.TailDraws,
		NumScores: len(s.Scores), NumLosses: len(s.Losses), NumTail: len(s.TailIDs),
	})
	if err != nil {
		panic("scheduler: a snapshot's head: " + err.Error())
	}
	b := bytes.NewBuffer(make([]byte, 0, 64+len(head)+4*(len(s.Scores)+len(s.Losses))+10*len(s.TailIDs)))
	b.WriteString(snapshotMagic)
	write(b, uint32(len(head)))
	b.Write(head)
	write(b, s.Scores)
	write(b, s.Losses)
	write(b, s.TailIDs)
	write(b, s.TailConsumer)
	write(b, s.TailLosses)
	write(b, crc32.ChecksumIEEE(b.Bytes()))
	return b.Bytes()
}

func write(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		panic("scheduler: writing to memory: " + err.Error())
	}
}

// DecodeSnapshot is the inverse of Encode. It returns ErrSnapshot, wrapped, for anything else.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	if len(data) < len(snapshotMagic)+8 || string(data[:len(snapshotMagic)]) != snapshotMagic {
		return nil, ErrSnapshot
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if crc32.ChecksumIEEE(body) != sum {
		return nil, fmt.Errorf("%w: the checksum differs", ErrSnapshot)
	}
	body = body[len(snapshotMagic):]
	n := binary.LittleEndian.Uint32(body)
	if uint64(n)+4 > uint64(len(body)) {
		return nil, ErrSnapshot
	}
	var h snapshotHead
	if err := json.Unmarshal(body[4:4+n], &h); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
	}
	body = body[4+n:]
	for _, k := range []int{h.NumScores, h.NumLosses, h.NumTail} {
		if k < 0 || k > len(body)/4 {
			return nil, ErrSnapshot
		}
	}
	if 4*(h.NumScores+h.NumLosses)+10*h.NumTail != len(body) {
		return nil, ErrSnapshot
	}
	s := &Snapshot{
		Plan: max(1, h.Plan), Data: h.Data, Sampler: h.Sampler, Options: h.Options, Seed: h.Seed, Batch: h.Batch, Epoch: h.Epoch, Final: h.Final,
		TailEpoch: h.TailEpoch, TailBatch: h.TailBatch, TailDraws: h.TailDraws,
		Scores: make([]float32, h.NumScores), Losses: make([]float32, h.NumLosses),
		TailIDs: make([]SampleID, h.NumTail), TailConsumer: make([]uint16, h.NumTail), TailLosses: make([]float32, h.NumTail),
	}
	r := bytes.NewReader(body)
	for _, v := range []any{s.Scores, s.Losses, s.TailIDs, s.TailConsumer, s.TailLosses} {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrSnapshot, err)
		}
	}
	return s, nil
}

// Snapshot describes the ledger as it is. planScores are the scores that the newest epoch's plan was made from.
// The caller fills in Data, Sampler, Options and Seed.
func (l *Ledger) Snapshot(planScores []float32) *Snapshot {
	if len(l.passes) == 0 {
		return &Snapshot{Plan: PlanVersion, Scores: planScores}
	}
	p := l.passes[len(l.passes)-1]
	s := &Snapshot{Plan: PlanVersion, Batch: p.batch, Epoch: p.epoch, Scores: planScores, Losses: p.losses, Final: p.final0()}
	if len(l.passes) > 1 {
		t := l.passes[len(l.passes)-2]
		lo := t.cut*t.batch - t.start
		s.TailEpoch, s.TailBatch, s.TailDraws = t.epoch, t.cut, t.draws
		s.TailIDs, s.TailConsumer, s.TailLosses = t.ids[lo:], t.consumer[lo:], t.losses[lo:]
	}
	return s
}

// final0 is the number of batches that are final for every trainer.
func (p *pass) final0() int {
	n := p.batches()
	for _, f := range p.final {
		n = min(n, int(f))
	}
	return n
}

// Final is the number of batches of epoch that are final for every trainer.
func (l *Ledger) Final(epoch int) int {
	if p := l.find(epoch); p != nil {
		return p.final0()
	}
	return 0
}

// RestoreLedger returns a ledger that stands where the snapshot's plan was made: its scores are those of the plan,
// its only open epoch is the tail. When sameTrainers holds, the tail's missing reports may still come; otherwise
// they count as never made. Epoch itself is opened by Open, and then its losses are given back by Resume.
func RestoreLedger(scorer Scorer, s *Snapshot, trainers int, sameTrainers bool) *Ledger {
	l := NewLedger(scorer, append([]float32(nil), s.Scores...))
	if len(s.TailIDs) == 0 {
		return l
	}
	t := &pass{
		epoch: s.TailEpoch, ids: s.TailIDs, consumer: s.TailConsumer, losses: append([]float32(nil), s.TailLosses...),
		start: s.TailBatch * s.Batch, batch: s.Batch, draws: s.TailDraws, cut: s.TailBatch, taken: true,
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
	copy(p.losses, s.Losses[:min(upTo*p.batch, len(p.losses))])
	for t := range p.final {
		p.final[t] = max(p.final[t], int32(upTo))
	}
}

// FoldAll folds every report that is there, final or not, and closes all epochs: the scores for a training that
// begins anew.
func (l *Ledger) FoldAll() []float32 {
	for _, p := range l.passes {
		l.foldPass(p, true, nil)
	}
	l.passes = nil
	return l.scores
}
