package training

import (
	"math"

	"rankpool/mpicache/fields"
	"rankpool/mpicache/message"
	"rankpool/scheduler/protocol"
)

// Records of trainers for the other ranks: u32 what, u32 trainer, u32 epoch, u32 batch, u32 n, u32
// m, f32 loss[n], f32 of all embeddings[m].
const (
	recordReport  = 1 // protocol.Trained
	recordMove    = 2 // protocol.Moved
	recordWish    = 3 // protocol.Wished
	recordSave    = 4 // protocol.Saving
	recordRestart = 5 // protocol.Restarted
	recordMeasure = 6 // protocol.Measured, its accuracy as the only loss
)

// outboxBytes is the size at which reports are sent without waiting for the tick.
const outboxBytes = 64 << 10

// outbox holds records for the other ranks.
type outbox struct {
	of    *Training
	bytes []byte
}

// tell sends a trainer's record to the other ranks. Losses are sent in batches, everything
// else at once.
func (o *outbox) tell(e protocol.Event) {
	switch e := e.(type) {
	case protocol.Trained:
		o.add(recordReport, e.Trainer, e.Epoch, e.Batch, e.Losses, e.Embeddings)
		if len(o.bytes) >= outboxBytes {
			o.flush()
		}
		return
	case protocol.Measured:
		o.add(recordMeasure, e.Trainer, e.Epoch, 0, []float32{e.Accuracy}, nil)
	case protocol.Moved:
		o.add(recordMove, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Wished:
		o.add(recordWish, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Saving:
		o.add(recordSave, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Restarted:
		o.add(recordRestart, e.Trainer, e.Epoch, e.Batch, nil, nil)
	}
	o.flush()
}

func (o *outbox) add(what, trainer, epoch, batch int, losses, embeddings []float32) {
	b := o.bytes
	for _, v := range []int{what, trainer, epoch, batch, len(losses), len(embeddings)} {
		b = le.AppendUint32(b, uint32(v))
	}
	for _, column := range [][]float32{losses, embeddings} {
		for _, x := range column {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	}
	o.bytes = b
}

func (o *outbox) flush() {
	if len(o.bytes) > 0 {
		message.ToOthers(o.of.rank.Transport, append(o.of.About().Begin(message.Reports), o.bytes...))
		o.bytes = o.bytes[:0]
	}
}

// receive handles the records of another rank, whose door has checked them.
func (o *outbox) receive(from int, body []byte) {
	s := o.of
	s.store.Locked(func() {
		for c := (fields.Reader{Rest: body}); len(c.Rest) > 0; {
			e := readRecord(&c, from)
			if c.Short || e == nil {
				s.store.Later(func() { s.rank.Log.Error("malformed reports", "from", from) })
				return
			}
			s.Coordinate(e)
		}
	})
}

// readRecord reads the next record; nil if its kind is unknown.
func readRecord(c *fields.Reader, from int) protocol.Event {
	what := c.U32()
	at := protocol.Moved{
		Rank: from, Trainer: int(c.U32()), Epoch: int(c.U32()), Batch: int(c.U32()),
	}
	n, m := c.U32(), c.U32()
	losses, embeddings := c.F32s(n), c.F32s(m)
	switch what {
	case recordReport:
		return protocol.Trained{
			Rank: at.Rank, Trainer: at.Trainer, Epoch: at.Epoch, Batch: at.Batch,
			Losses: losses, Embeddings: embeddings,
		}
	case recordMeasure:
		if len(losses) == 1 {
			return protocol.Measured{
				Rank: from, Trainer: at.Trainer, Epoch: at.Epoch, Accuracy: losses[0],
			}
		}
	case recordMove:
		return at
	case recordWish:
		return protocol.Wished(at)
	case recordSave:
		return protocol.Saving(at)
	case recordRestart:
		return protocol.Restarted(at)
	}
	return nil
}
