package scheduler

import (
	"encoding/binary"
	"math"
)

// placedHead is the part of a Placed in a snapshot's head, with the arrays' lengths. After the cuts
// come the residents of each rank, then the tail's samples, 4 bytes each, then the tail's owners, 2
// bytes each.
type placedHead struct {
	CapacityBytes []int64
	NumResidents  []int // by rank
	TailEpoch     int
	NumTail       int
}

func (p *Placed) head() *placedHead {
	if p == nil {
		return nil
	}
	h := &placedHead{
		CapacityBytes: p.CapacityBytes, TailEpoch: p.TailEpoch, NumTail: len(p.Tail),
	}
	for _, ids := range p.Residents {
		h.NumResidents = append(h.NumResidents, len(ids))
	}
	return h
}

func (p *Placed) encode(e *encoder) {
	if p == nil {
		return
	}
	for _, ids := range p.Residents {
		e.words(len(ids), func(i int) uint32 { return uint32(ids[i]) })
	}
	e.words(len(p.Tail), func(i int) uint32 { return uint32(p.Tail[i]) })
	for _, rank := range p.TailHome {
		e.bytes([]byte{byte(rank), byte(rank >> 8)})
	}
}

// bytes is the length of the arrays, -1 if it cannot be that of a snapshot.
func (h *placedHead) bytes() int {
	if h == nil {
		return 0
	}
	n := 2 * int64(h.NumTail)
	for _, ids := range append(h.NumResidents, h.NumTail) {
		if ids < 0 || ids > math.MaxInt32 {
			return -1
		}
		n += 4 * int64(ids)
	}
	return int(n)
}

// empty returns a Placed with arrays of the lengths in h, and these arrays in the order of encode.
func (h *placedHead) empty() (p *Placed, arrays []any) {
	p = &Placed{
		CapacityBytes: h.CapacityBytes, TailEpoch: h.TailEpoch,
		Tail: make([]SampleID, h.NumTail), TailHome: make([]uint16, h.NumTail),
	}
	for _, n := range h.NumResidents {
		ids := make([]SampleID, n)
		p.Residents, arrays = append(p.Residents, ids), append(arrays, ids)
	}
	return p, append(arrays, p.Tail, p.TailHome)
}

// fits reports whether all samples and ranks exist, and residents are ascending.
func (p *Placed) fits(samples int) bool {
	if len(p.CapacityBytes) != len(p.Residents) {
		return false
	}
	for _, ids := range p.Residents {
		for i, id := range ids {
			if int(id) >= samples || i > 0 && ids[i-1] >= id {
				return false
			}
		}
	}
	for i, id := range p.Tail {
		if int(id) >= samples || int(p.TailHome[i]) >= len(p.CapacityBytes) {
			return false
		}
	}
	return true
}

// sourceDigest returns the digest of what the plan of a snapshot's epoch is made from: of its
// scores and, if the plan places samples, of where they were.
func sourceDigest(stream StreamID, s *Snapshot) Digest {
	scores := (&Snapshot{Stream: stream, Epoch: s.Epoch, Scores: s.Scores}).Digest()
	if s.Placed == nil {
		return scores
	}
	return digestOf(func(e *encoder) {
		number := func(n uint64) { e.bytes(binary.LittleEndian.AppendUint64(nil, n)) }
		e.bytes([]byte(scores))
		number(uint64(len(s.Placed.CapacityBytes)))
		for r, bytes := range s.Placed.CapacityBytes {
			number(uint64(bytes))
			number(uint64(len(s.Placed.Residents[r])))
		}
		number(uint64(s.Placed.TailEpoch))
		number(uint64(len(s.Placed.Tail)))
		s.Placed.encode(e)
	})
}
