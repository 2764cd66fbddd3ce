package stager

import (
	"rankpool/scheduler/draw"
)

// To measure what caching is worth to a training (benefit.go), some batches are delivered only when
// their samples that were in memory, here, in a tier or on another rank, have been read from
// storage, too. These reads go to memory of their own, which counts in the window until they end.
// Nothing else changes: what is kept and what is delivered is the same as without them.

// reread makes a part wait until a sample has been read from storage. Batches that are in the
// window at the same time share a read, as they do without a cache.
func (s *Stager) reread(p *part, id draw.SampleID) {
	parts, coming := s.rereads[id]
	l := p.lane
	slowest, _ := l.slowest()
	if at, read := l.probed[id]; read && at >= slowest && !coming {
		l.probed[id] = max(at, p.position)
		return
	}
	l.probed[id] = p.position
	p.missing++
	s.rereads[id] = append(parts, p)
	if !coming {
		s.windowBytes += s.cfg.Size(id)
		s.emit(Read{ID: id, Need: p.lane.needOf(p.position)})
	}
}

func (s *Stager) onReread(e Reread) {
	parts, coming := s.rereads[e.ID]
	if !coming {
		return
	}
	delete(s.rereads, e.ID)
	s.windowBytes -= s.cfg.Size(e.ID)
	for _, p := range parts {
		if p.lane.parts[p.partKey] != p && s.byTicket[p.ticket] != p {
			continue // it was dropped
		}
		if plan := p.lane.plan(p.epoch); e.Err != nil && plan != nil {
			plan.probe = Probe{}
		}
		p.missing--
		s.completed(p)
		s.tryDeliver(p)
	}
}

// completed reports a timed part once it is complete.
func (s *Stager) completed(p *part) {
	if !p.timed || p.missing > 0 {
		return
	}
	p.timed = false
	if plan := p.lane.plan(p.epoch); plan != nil && plan.probe != (Probe{}) {
		s.emit(Timed{Lane: p.lane.number, Trainer: p.trainer, Epoch: p.epoch, Batch: p.batch})
	}
}
