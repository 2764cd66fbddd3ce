package mpicache

import (
	"slices"
	"time"

	"rankpool/mpicache/door"
	"rankpool/mpicache/slab"
	"rankpool/scheduler"
)

// warming holds the samples that were staged into memory before training. It ends when all trainers
// have opened the data set: then the stager gets the samples that are here, and decides.
type warming struct {
	// here or coming, in order of the requests
	ids      []scheduler.SampleID
	bytes    int64                       // that they take of the partition
	coming   map[scheduler.SampleID]bool // being read
	begun    bool                        // training has: nothing is taken any more
	requests []*warmRequest              // without a reply
	until    time.Time                   // if begun: when to abandon samples that are still coming
}

// warmPatience is how long the beginning of training waits for reads that staging into memory has
// begun: they end sooner, unless storage hangs. A request has a few thousand samples, which slow
// storage reads in that time.
const warmPatience = 30 * time.Second

// warmRequest is a WARM under way.
type warmRequest struct {
	door.Warmed
	conn   *conn
	ticket uint32
	coming int
}

// onWarm reads the samples that this rank owns into memory, as far as its partition goes, and
// answers when they are here.
func (s *samples) onWarm(c *conn, ticket uint32, w door.Warm) (err error) {
	s.locked(func() {
		if err = s.checkWarm(c, w); err != nil {
			return
		}
		r := &warmRequest{conn: c, ticket: ticket}
		r.Failures = []door.WarmFailure{}
		s.warm.requests = append(s.warm.requests, r)
		for _, id := range w.IDs {
			s.warmOne(r, id)
		}
		s.answerWarm(r)
	})
	return err
}

// warmOne begins to read a sample, if it may be in this rank's memory.
func (s *samples) warmOne(r *warmRequest, id scheduler.SampleID) {
	w, t := &s.warm, s.node.cfg.Transport
	bytes := slab.Footprint(s.data.Size(id))
	switch {
	case scheduler.Owner(id, t.Size()) != t.Rank():
		r.Elsewhere++
		return
	case s.has(id):
		r.Here++
		return
	case w.bytes+bytes > s.data.PartitionBytes[t.Rank()] || !s.occupy(id):
		r.NoRoom++
		return
	}
	if w.coming == nil {
		w.coming = map[scheduler.SampleID]bool{}
	}
	w.ids, w.bytes, w.coming[id] = append(w.ids, id), w.bytes+bytes, true
	r.coming++
	s.reads.Add(1)
	off, into := s.place(id), s.bytes(id)
	s.read(id, uint64(len(w.ids)), func(_ bool, err error) {
		sum := s.sumOf(into, err)
		s.locked(func() { s.warmRead(r, id, off, sum, err) })
		s.reads.Done()
	})
}

// warmRead takes the end of a read into the place at off.
func (s *samples) warmRead(
	r *warmRequest, id scheduler.SampleID, off int64, sum uint32, err error,
) {
	r.coming--
	w := &s.warm
	if !w.coming[id] { // it was abandoned, and has no place any more
		s.node.free(off)
		r.fail(id, "training began before it was read")
		s.answerWarm(r)
		return
	}
	delete(w.coming, id)
	if err != nil {
		s.vacate(id)
		w.ids = slices.DeleteFunc(w.ids, func(other scheduler.SampleID) bool { return other == id })
		w.bytes -= slab.Footprint(s.data.Size(id))
		r.fail(id, err.Error())
	} else {
		s.put(id, sum)
		r.Staged++
		r.Bytes += s.data.Size(id)
	}
	s.answerWarm(r)
	if w.begun && len(w.coming) == 0 && !s.closed {
		s.begin()
	}
}

func (r *warmRequest) fail(id scheduler.SampleID, reason string) {
	r.Failures = append(r.Failures, door.WarmFailure{Sample: id, Reason: reason})
}

// answerWarm answers when nothing is coming any more.
func (s *samples) answerWarm(r *warmRequest) {
	if r.coming == 0 {
		s.warm.requests = slices.DeleteFunc(s.warm.requests,
			func(other *warmRequest) bool { return other == r })
		s.reply(r.conn, door.AppendJSON(nil, door.KindWarm.Reply(), r.ticket, r.Warmed))
	}
}

// cooled ends the warming of a data set that all trainers have opened. It reports false while reads
// are under way: the last of them continues, or tick.
func (s *samples) cooled(now time.Time) bool {
	if w := &s.warm; !w.begun {
		w.begun, w.until = true, now.Add(warmPatience)
	}
	return len(s.warm.coming) == 0
}

// giveUpWarm lets training begin without samples that storage has not returned in time. Their
// places are freed when the reads end.
func (s *samples) giveUpWarm(now time.Time) {
	w := &s.warm
	if !w.begun || len(w.coming) == 0 || now.Before(w.until) {
		return
	}
	s.node.cfg.Log.Warn(
		"storage does not answer; training begins without samples that were being staged",
		"data", s.data.Name, "samples", len(w.coming))
	for id := range w.coming {
		s.entries.Drop(int(id))
	}
	w.ids = slices.DeleteFunc(w.ids, func(id scheduler.SampleID) bool { return w.coming[id] })
	w.coming = nil
	s.begin()
}

// takeWarm passes the previous rank's samples and the warmed ones to the new stager.
func (s *samples) takeWarm() {
	if before := s.recovered; len(before) > 0 {
		s.recovered = nil
		s.step(scheduler.Recovered{IDs: before})
	}
	here := s.warm.ids
	s.warm = warming{begun: true, requests: s.warm.requests}
	if len(here) > 0 {
		s.node.cfg.Log.Info("training begins with samples that were staged into memory", "data",
			s.data.Name, "samples", len(here))
		s.step(scheduler.Preloaded{IDs: here})
	}
}
