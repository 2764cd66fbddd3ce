package door

import (
	"encoding/hex"
	"encoding/json"
	"iter"
	"math"

	"rankpool/mpicache/fields"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// Welcome is the reply to HELLO. It is JSON, except for the fields that the reply has in binary.
type Welcome struct {
	Rank        int           `json:"-"`
	Ranks       int           `json:"-"`
	SlabBytes   int64         `json:"-"`
	Data        []WelcomeData `json:"data"`
	Session     string        `json:"session"`
	PlanVersion int           `json:"plan_version"`
	Options     string        `json:"options"`
	Sampler     string        `json:"sampler"`
}

// WelcomeData is a data set that a rank serves.
type WelcomeData struct {
	Name     string `json:"name"`
	Samples  int    `json:"samples"`
	Index    string `json:"index"` // file of the sample index
	Root     string `json:"root"`
	Identity string `json:"identity"`
	Times    string `json:"times"`
}

// appendWelcome appends the reply to HELLO.
func appendWelcome(b []byte, ticket uint32, w Welcome) []byte {
	start := len(b)
	b = appendHead(b, KindHello.Reply(), ticket)
	b = le.AppendUint16(b, Version)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, uint32(w.Rank))
	b = le.AppendUint32(b, uint32(w.Ranks))
	b = le.AppendUint64(b, uint64(w.SlabBytes))
	return endFrame(append(b, encode(w)...), start)
}

// parseWelcome parses the reply to HELLO.
func parseWelcome(b []byte) (Welcome, error) {
	p := fields.Reader{Rest: b}
	p.U32()
	w := Welcome{Rank: int(p.U32()), Ranks: int(p.U32()), SlabBytes: int64(p.U64())}
	if p.Short {
		return w, ErrFrame
	}
	return w, json.Unmarshal(p.Rest, &w)
}

// Opened is the reply to OPEN.
type Opened struct {
	Stream  int64  `json:"stream"`
	Batches int    `json:"batches"`
	Scorer  string `json:"scorer"`
	// what the served samples depend on besides spec and options
	Choice string `json:"choice,omitempty"`
	// length of the embedding to report with each loss; 0: none
	Embeddings int `json:"embeddings,omitempty"`
}

// Saved is the reply to SAVE.
type Saved struct {
	Saved string `json:"saved"` // the state file; "": there is none
	// "": nothing depends on importance, or not all reports arrived
	State protocol.Digest `json:"state"`
}

// Status is the reply to STATUS, about the trainers of a rank.
type Status struct {
	Rank  int          `json:"rank"`
	Ranks int          `json:"ranks"`
	Data  []DataStatus `json:"data"`
	// by rank: on rank 0 all ranks that have reported lately, elsewhere only this one
	Nodes []stats.Reading `json:"nodes"`
}

// DataStatus is the progress of training in a data set.
type DataStatus struct {
	Name    string `json:"name"`
	Job     string `json:"job,omitempty"` // the training's name
	Epoch   int    `json:"epoch"`
	Batch   int    `json:"batch"` // how many the slowest trainer has been given
	Batches int    `json:"batches"`
	Hits    int64  `json:"hits"`
	Draws   int64  `json:"draws"`
	// NextChunk is the chunk that is drawn after the current one; -1: the sampler has no chunks, or
	// training is between two epochs.
	NextChunk int `json:"next_chunk"`
}

// AppendJSON appends a frame whose payload is v as JSON; v must be encodable.
func AppendJSON(b []byte, kind Kind, ticket uint32, v any) []byte {
	return AppendFrame(b, kind, ticket, encode(v))
}

// encode returns v as JSON; v must be encodable.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("door: a reply is not JSON: " + err.Error())
	}
	return text
}

// AppendError appends an error reply.
func AppendError(b []byte, ticket uint32, no Error) []byte {
	start := len(b)
	b = appendHead(b, KindError, ticket)
	b = le.AppendUint16(b, no.Code)
	b = le.AppendUint16(b, 0)
	return endFrame(append(b, no.Sentence...), start)
}

// BatchEntry is one sample of a BATCH reply.
type BatchEntry struct {
	ID, Label, Length uint32
	Offset            uint64
	Source            stager.Source
	Substitute        bool // served in place of another sample
}

// substituteBit marks, in the source of a sample, that it is served instead of another one.
const substituteBit = 0x80

// AppendBatch appends the reply to GET.
func AppendBatch(b []byte, ticket, lease uint32, entries []BatchEntry, errs map[int]error) []byte {
	start := len(b)
	b = appendHead(b, KindGet.Reply(), ticket)
	b = le.AppendUint32(b, lease)
	b = le.AppendUint32(b, uint32(len(entries)))
	for i := range entries {
		b = le.AppendUint32(b, entries[i].ID)
	}
	for i := range entries {
		b = le.AppendUint32(b, entries[i].Label)
	}
	for i := range entries {
		b = le.AppendUint64(b, entries[i].Offset)
	}
	for i := range entries {
		b = le.AppendUint64(b, entries[i].Offset+uint64(entries[i].Length))
	}
	for i := range entries {
		source := byte(entries[i].Source)
		if entries[i].Substitute {
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
	PlanWeights = 1 << iota
	PlanRepeats
	PlanSource
	PlanEvaluated
)

// PlanFrame yields the reply to PLAN, in pieces: the trainer's part of every batch, and, if the
// plan was made from scores, their digest. A piece is valid until the next one.
func PlanFrame(
	ticket uint32, p *plan.Plan, trainer int, source protocol.Digest,
) iter.Seq[[]byte] {
	flags, columns, behind := uint32(0), 1, []byte(nil)
	if p.Weighted() {
		flags, columns = flags|PlanWeights, columns+1
	}
	for k := range p.Repeats(trainer) {
		if k > 0 {
			flags, columns = flags|PlanRepeats, columns+1
			break
		}
	}
	if e := p.Evaluated(); e.N > 0 {
		flags |= PlanEvaluated
		behind = le.AppendUint32(le.AppendUint32(behind, uint32(e.First)), uint32(e.N))
	}
	if source != "" {
		flags |= PlanSource
		digest, err := hex.DecodeString(string(source))
		if err != nil {
			panic("door: a digest is " + string(source))
		}
		behind = append(behind, digest...)
	}
	return func(yield func([]byte) bool) {
		const planHeadBytes = 16
		b := appendHead(make([]byte, 0, pieceBytes), KindPlan.Reply(), ticket)
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

// pieceBytes is the most of a plan's frame that is in memory at a time, not counting what follows
// its columns.
const pieceBytes = 64 << 10

// planColumns yields the lengths of the trainer's part of every batch, and the columns of its draws
// that flags select.
func planColumns(p *plan.Plan, trainer int, flags uint32) iter.Seq[uint32] {
	draws := func(yield func(uint32) bool, of func(i int) uint32) bool {
		for i := range p.IDs {
			if int(p.Consumer[i]) == trainer && !yield(of(i)) {
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
		ids := func(i int) uint32 { return uint32(p.IDs[i]) }
		weight := func(i int) uint32 { return math.Float32bits(p.WeightAt(i)) }
		if !draws(yield, ids) || flags&PlanWeights != 0 && !draws(yield, weight) ||
			flags&PlanRepeats == 0 {
			return
		}
		p.Repeats(trainer)(yield)
	}
}
