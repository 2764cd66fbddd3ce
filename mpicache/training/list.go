package training

import (
	"math/bits"
	"slices"

	"rankpool/mpicache/door"
	"rankpool/mpicache/fields"
	"rankpool/mpicache/message"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// With the sampler listed, trainers hand in their parts of an epoch, in pieces. A rank joins those
// of its own trainers, checks the parts, and sends them to the other ranks.

// pieces is a part of an epoch of which some pieces have come.
type pieces struct {
	epoch, total uint32
	numbers      []draw.SampleID
}

// List handles a piece of a part of an epoch from a trainer here.
func (s *Training) List(c Client, l door.List) (err error) {
	s.store.Locked(func() {
		if err = s.sit(c, true); err != nil {
			return
		}
		if err = checkEpoch(l.Epoch); err != nil {
			return
		}
		spec, trainer := s.coordinator.Spec(), int(c.ID().Trainer)
		switch {
		case !spec.Listed():
			err = door.Refuse("the sampler is %s, and not %s: ranks know what it draws", spec.Sampler,
				draw.InList)
		case int64(l.Total) > 1+2*int64(spec.Draws(s.data.Samples)):
			err = door.Refuse("epoch %d of trainer %d has %d batches and ids, and may have %d of each: "+
				"hand it in by blocks", l.Epoch, trainer, l.Total-1, spec.Draws(s.data.Samples))
		case l.Confirms() && !s.coordinator.Lists(trainer, int(l.Epoch)):
			err = door.NotReady("trainer %d has not handed in epoch %d here", trainer, l.Epoch)
		default:
			err = s.hear(s.rank.Transport.Rank(), trainer, l)
		}
	})
	return err
}

// hear passes a part to the coordinator when its last piece has come.
func (s *Training) hear(from, trainer int, l door.List) error {
	e := protocol.Listed{
		Rank: from, Trainer: trainer, Epoch: int(l.Epoch), Final: l.Flags&door.ListAhead == 0,
	}
	if !l.Confirms() {
		p := s.lists[trainer]
		if l.First == 0 {
			p = &pieces{epoch: l.Epoch, total: l.Total}
			s.lists[trainer] = p
		}
		if p == nil || p.epoch != l.Epoch || p.total != l.Total || int(l.First) != len(p.numbers) ||
			len(l.Numbers) > int(l.Total-l.First) {
			delete(s.lists, trainer)
			return door.Refuse("numbers %d to %d of epoch %d of trainer %d do not follow those before",
				l.First, int(l.First)+len(l.Numbers), l.Epoch, trainer)
		}
		if p.numbers = append(p.numbers, l.Numbers...); len(p.numbers) < int(p.total) {
			return nil
		}
		delete(s.lists, trainer)
		list, err := plan.NewList(p.numbers, s.data.Samples)
		if err != nil {
			return door.Refuse("epoch %d of trainer %d: %s", l.Epoch, trainer, err)
		}
		e.List = &list
	}
	s.Coordinate(e)
	return nil
}

// sendList sends a trainer's part to the other ranks: u32 trainer, u32 epoch, u32 flags, u32 total,
// u32 first, u8 bytes of a number, then the numbers, in pieces.
func (s *Training) sendList(e protocol.Listed) {
	flags := uint32(0)
	if !e.Final {
		flags = door.ListAhead
	}
	send := func(total, first int, numbers []draw.SampleID) {
		msg := s.About().Begin(message.List)
		for _, v := range []uint32{
			uint32(e.Trainer), uint32(e.Epoch), flags, uint32(total), uint32(first),
		} {
			msg = le.AppendUint32(msg, v)
		}
		message.ToOthers(s.rank.Transport, appendPacked(msg, numbers))
	}
	if e.List == nil {
		send(0, 0, nil)
		return
	}
	numbers := e.List.Numbers()
	for first := 0; first < len(numbers); first += door.ListNumbers {
		send(len(numbers), first, numbers[first:min(first+door.ListNumbers, len(numbers))])
	}
}

// onList handles a piece of a part of a trainer of another rank, which has checked it.
func (s *Training) onList(from int, body []byte) {
	c := fields.Reader{Rest: body}
	trainer := int(c.U32())
	l := door.List{Epoch: c.U32(), Flags: c.U32(), Total: c.U32(), First: c.U32()}
	l.Numbers = readPacked(&c)
	s.store.Locked(func() {
		if err := s.hear(from, trainer, l); err != nil || !c.Whole() {
			s.rank.Log.Error("malformed list", "from", from, "error", err)
		}
	})
}

// appendPacked appends numbers with as many bytes as the largest one needs.
func appendPacked(b []byte, numbers []draw.SampleID) []byte {
	width := 1
	if len(numbers) > 0 {
		width = max(1, (bits.Len32(uint32(slices.Max(numbers)))+7)/8)
	}
	b = slices.Grow(append(b, byte(width)), width*len(numbers)+4)
	for _, n := range numbers {
		b = le.AppendUint32(b, uint32(n))[:len(b)+width]
	}
	return b
}

func readPacked(c *fields.Reader) []draw.SampleID {
	width := int(max(1, c.Bytes(1)[0]))
	numbers := make([]draw.SampleID, 0, len(c.Rest)/width)
	for len(c.Rest) >= width {
		var b [4]byte
		copy(b[:], c.Bytes(width))
		numbers = append(numbers, draw.SampleID(le.Uint32(b[:])))
	}
	return numbers
}
