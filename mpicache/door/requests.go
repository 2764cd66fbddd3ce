package door

import (
	"math"

	"rankpool/mpicache/fields"
	"rankpool/mpicache/stats"
	"rankpool/scheduler/draw"
)

// Hello is HELLO's payload: who the client is.
type Hello struct {
	Version         uint16
	Trainer, World  uint32
	Worker          uint64
	Process, Family uint64
}

// ParseHello parses HELLO. If the version is another one, it returns only the version.
func ParseHello(b []byte) (Hello, error) {
	p := fields.Reader{Rest: b}
	if string(p.Bytes(len(magic))) != magic {
		return Hello{}, ErrFrame
	}
	h := Hello{Version: p.U16()}
	if h.Version != Version && !p.Short {
		return h, nil // what follows may differ
	}
	p.U16()
	h.Trainer, h.World, h.Worker = p.U32(), p.U32(), p.U64()
	h.Process, h.Family = p.U64(), p.U64()
	return h, end(&p)
}

// AppendHello appends the HELLO frame that opens a connection.
func AppendHello(b []byte, ticket uint32, h Hello) []byte {
	start := len(b)
	b = append(appendHead(b, KindHello, ticket), magic...)
	b = le.AppendUint16(b, h.Version)
	b = le.AppendUint16(b, 0)
	b = le.AppendUint32(b, h.Trainer)
	b = le.AppendUint32(b, h.World)
	for _, v := range []uint64{h.Worker, h.Process, h.Family} {
		b = le.AppendUint64(b, v)
	}
	return endFrame(b, start)
}

// check returns an error unless h is from a trainer, or from a client that trains nothing.
func (h Hello) check() error {
	switch {
	case h.Version != Version:
		return Broken("the client speaks version %d of the protocol, this rank version %d; use "+
			"the client that this rankpool brings along", h.Version, Version)
	case h.Trainer == ControlTrainer:
		return nil
	case h.World < 1 || h.World > maxWorld:
		return Refuse("WORLD_SIZE must be in [1, %d], not %d", maxWorld, h.World)
	case h.Trainer >= h.World:
		return Refuse("RANK must be in [0, %d), below WORLD_SIZE, not %d", h.World, h.Trainer)
	}
	return nil
}

// Get is GET's payload, and RELEASE's with only leases and tally.
type Get struct {
	Stream, Epoch, Batch uint32
	Leases               []uint32
	Tally                Tally
}

// ParseGet parses GET, with its leases in leases, which grows as needed.
func ParseGet(b []byte, leases []uint32) (Get, error) {
	p := fields.Reader{Rest: b}
	g := Get{Stream: p.U32(), Epoch: p.U32(), Batch: p.U32()}
	return g.released(&p, leases)
}

// ParseRelease parses RELEASE, with its leases in leases, which grows as needed.
func ParseRelease(b []byte, leases []uint32) (Get, error) {
	p := fields.Reader{Rest: b}
	return Get{}.released(&p, leases)
}

func (g Get) released(p *fields.Reader, leases []uint32) (Get, error) {
	g.Leases = fields.U32s(p, leases[:0], p.U32())
	g.Tally = parseTally(p)
	return g, end(p)
}

// Tally is what a worker has counted in an epoch so far. Only the counts on the wire are set.
type Tally struct {
	Stream, Epoch uint32
	Counts        stats.Counts
}

// notMeasured stands for the stall seconds of a trainer that does not measure them.
const notMeasured = math.MaxUint64

// Append appends the tally as encoded in a frame.
func (t Tally) Append(b []byte) []byte {
	b = le.AppendUint32(le.AppendUint32(b, t.Stream), t.Epoch)
	for i := stats.HitsLocal; i <= stats.SubstituteReads; i++ {
		b = le.AppendUint32(b, uint32(t.Counts[i]))
	}
	for i := stats.StorageBytes; i <= stats.TrainSeconds; i++ {
		if i == stats.StallSeconds && t.Counts[stats.Unmeasured] > 0 {
			b = le.AppendUint64(b, notMeasured)
		} else {
			b = le.AppendUint64(b, uint64(t.Counts[i]))
		}
	}
	evaluated, unplanned := t.Counts[stats.Evaluated], t.Counts[stats.UnplannedBytes]
	if evaluated > 0 || unplanned > 0 {
		b = le.AppendUint32(b, uint32(evaluated))
		b = le.AppendUint32(b, uint32(t.Counts[stats.EvaluatedReads]))
	}
	if unplanned > 0 {
		b = le.AppendUint64(b, uint64(unplanned))
	}
	return b
}

// Fell reports whether a count is less than it was in last: then the worker counts from 0 again.
func (t Tally) Fell(last Tally) bool {
	last.Counts[stats.Unmeasured] = 0 // a trainer may begin to measure, or end
	if t.Counts[stats.Unmeasured] > 0 {
		last.Counts[stats.StallSeconds] = 0
	}
	for c := range t.Counts {
		if t.Counts[c] < last.Counts[c] {
			return true
		}
	}
	return false
}

func parseTally(p *fields.Reader) Tally {
	t := Tally{Stream: p.U32(), Epoch: p.U32()}
	for i := stats.HitsLocal; i <= stats.SubstituteReads; i++ {
		t.Counts[i] = int64(p.U32())
	}
	for i := stats.StorageBytes; i <= stats.TrainSeconds; i++ {
		if n := p.U64(); i == stats.StallSeconds && n == notMeasured {
			t.Counts[stats.Unmeasured] = 1
		} else {
			t.Counts[i] = int64(min(n, math.MaxInt64))
		}
	}
	if len(p.Rest) > 0 { // some of the epoch's batches are evaluated
		t.Counts[stats.Evaluated], t.Counts[stats.EvaluatedReads] = int64(p.U32()), int64(p.U32())
	}
	if len(p.Rest) > 0 { // something was read outside the pieces of samples
		t.Counts[stats.UnplannedBytes] = int64(min(p.U64(), math.MaxInt64))
	}
	return t
}

// Report is REPORT's payload.
type Report struct {
	Stream, Epoch, Batch uint32
	Losses               []float32
	Embeddings           []float32 // of Dimensions numbers each, one after the other
	Dimensions           uint32    // 0: there are none
}

// ParseReport parses REPORT.
func ParseReport(b []byte) (Report, error) {
	p := fields.Reader{Rest: b}
	r := Report{Stream: p.U32(), Epoch: p.U32(), Batch: p.U32()}
	n := p.U32()
	r.Losses = p.F32s(n)
	if len(p.Rest) == 0 {
		return r, end(&p)
	}
	r.Dimensions = p.U32()
	if uint64(n)*uint64(r.Dimensions) > uint64(len(p.Rest)) {
		return r, ErrFrame
	}
	r.Embeddings = p.F32s(n * r.Dimensions)
	return r, end(&p)
}

// List is LIST's payload: a piece of a trainer's part of an epoch, as numbers (plan.NewList).
type List struct {
	Stream, Epoch uint32
	Flags         uint32
	Total, First  uint32 // numbers of the part, and of it before this piece
	Numbers       []draw.SampleID
}

// ListAhead is the flag of a LIST of a part that may still be replaced.
const ListAhead = 1

// Confirms reports whether l only says that the part handed in before is final.
func (l List) Confirms() bool { return l.Total == 0 }

// ParseList parses LIST.
func ParseList(b []byte) (List, error) {
	p := fields.Reader{Rest: b}
	l := List{Stream: p.U32(), Epoch: p.U32(), Flags: p.U32(), Total: p.U32(), First: p.U32()}
	l.Numbers = fields.U32s[draw.SampleID](&p, nil, uint32(len(p.Rest)/4))
	return l, end(&p)
}

// Place is the payload of PLAN and SAVE: a batch of an epoch.
type Place struct{ Stream, Epoch, Batch uint32 }

// ParsePlace parses PLAN and SAVE.
func ParsePlace(b []byte) (Place, error) {
	p := fields.Reader{Rest: b}
	return Place{Stream: p.U32(), Epoch: p.U32(), Batch: p.U32()}, end(&p)
}

// What a METRIC that is sent again is for.
const (
	ToLog   = "log"   // it is recorded
	ToPlans = "plans" // epochs are planned by it
)

// Metric is METRIC's payload, JSON.
type Metric struct {
	Stream, Epoch uint32
	Name          string
	Value         float64
	To            string // ToLog or ToPlans; "": both
}
