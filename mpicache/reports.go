package mpicache

import (
	"math"

	"rankpool/mpicache/fields"
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
)

// outboxBytes is the size at which reports are sent without waiting for the tick.
const outboxBytes = 64 << 10

// tellRecord sends a trainer's record to the other ranks. Losses are sent in batches, everything
// else at once.
func (s *stream) tellRecord(e protocol.Event) {
	switch e := e.(type) {
	case protocol.Trained:
		s.outRecord(recordReport, e.Trainer, e.Epoch, e.Batch, e.Losses, e.Embeddings)
		if len(s.outbox) >= outboxBytes {
			s.flushReports()
		}
		return
	case protocol.Moved:
		s.outRecord(recordMove, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Wished:
		s.outRecord(recordWish, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Saving:
		s.outRecord(recordSave, e.Trainer, e.Epoch, e.Batch, nil, nil)
	case protocol.Restarted:
		s.outRecord(recordRestart, e.Trainer, e.Epoch, e.Batch, nil, nil)
	}
	s.flushReports()
}

func (s *stream) outRecord(what, trainer, epoch, batch int, losses, embeddings []float32) {
	b := s.outbox
	for _, v := range []int{what, trainer, epoch, batch, len(losses), len(embeddings)} {
		b = le.AppendUint32(b, uint32(v))
	}
	for _, column := range [][]float32{losses, embeddings} {
		for _, x := range column {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	}
	s.outbox = b
}

func (s *stream) flushReports() {
	if len(s.outbox) > 0 {
		s.node.toPeers(append(s.message(messageReports), s.outbox...))
		s.outbox = s.outbox[:0]
	}
}

// onReports handles the records of another rank, whose door has checked them.
func (s *stream) onReports(from int, body []byte) {
	s.locked(func() {
		for c := (fields.Reader{Rest: body}); len(c.Rest) > 0; {
			e := readRecord(&c, from)
			if c.Short || e == nil {
				s.later(func() { s.node.cfg.Log.Error("malformed reports", "from", from) })
				return
			}
			s.coordinate(e)
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
