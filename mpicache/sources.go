package mpicache

import (
	"fmt"

	"rankpool/scheduler"
)

// Ranks make the same plans, each for itself, from the same scores. They tell each other the digest of the scores that they
// made a plan from, and no trainer gets a plan before all ranks have made it from the same ones.

// sources are the digests of the scores that plans were made from. When training goes elsewhere, or begins anew, all ranks
// begin another generation of them.
type sources struct {
	told       []map[int]scheduler.Digest // by rank, by epoch
	newest     []int                      // by rank: the newest epoch, noEpoch before the first
	rank       int                        // this one
	generation uint32
	early      []source // of ranks that are a generation ahead
}

// source is what a rank tells of a plan.
type source struct {
	rank       int
	generation uint32
	epoch      int
	digest     scheduler.Digest
}

func newSources(rank, ranks int) sources {
	s := sources{told: make([]map[int]scheduler.Digest, ranks), newest: make([]int, ranks), rank: rank}
	s.clear()
	return s
}

func (s *sources) clear() {
	for r := range s.told {
		s.told[r], s.newest[r] = map[int]scheduler.Digest{}, noEpoch
	}
}

// next begins another generation, with what was told of it already, and returns the errors of that.
func (s *sources) next() (errs []error) {
	s.clear()
	s.generation++
	early := s.early
	s.early = nil
	for _, e := range early {
		if err := s.take(e); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// take notes what a rank tells, now or when its generation begins here.
func (s *sources) take(e source) error {
	switch {
	case e.generation > s.generation:
		s.early = append(s.early, e)
		return nil
	case e.generation < s.generation:
		return nil
	}
	return s.tell(e.rank, e.epoch, e.digest)
}

// keptSources is for how many epochs before a rank's newest its digests are kept: others may be so far behind.
const keptSources = 3

// tell notes the digest of a rank, and returns an error when it is not that of another.
func (s *sources) tell(rank, epoch int, digest scheduler.Digest) error {
	s.told[rank][epoch], s.newest[rank] = digest, max(s.newest[rank], epoch)
	for e := range s.told[rank] {
		if e < s.newest[rank]-keptSources {
			delete(s.told[rank], e)
		}
	}
	for r, told := range s.told {
		if other, ok := told[epoch]; ok && other != digest {
			return fmt.Errorf("ranks %d and %d have planned epoch %d from different importance scores (%.8s, %.8s): go on from a checkpoint",
				min(r, rank), max(r, rank), epoch, s.told[min(r, rank)][epoch], s.told[max(r, rank)][epoch])
		}
	}
	return nil
}

// agreed reports whether all ranks have planned an epoch, or have gone on to a later one.
func (s *sources) agreed(epoch int) bool {
	for r, told := range s.told {
		if _, ok := told[epoch]; !ok && s.newest[r] <= epoch {
			return false
		}
	}
	return true
}

// own is this rank's digest for an epoch.
func (s *sources) own(epoch int) scheduler.Digest { return s.told[s.rank][epoch] }

// tellSource notes what a plan here was made from, and tells the other ranks.
func (s *stream) tellSource(epoch int, digest scheduler.Digest) {
	t := s.node.cfg.Transport
	generation := s.planner.sources.generation
	msg := le.AppendUint32(s.node.message(messageSource, s.index), generation)
	msg = append(le.AppendUint32(msg, uint32(epoch)), digest...)
	for r := range t.Size() {
		if r != t.Rank() {
			t.Post(r, msg)
		}
	}
	s.noteSource(source{t.Rank(), generation, epoch, digest})
}

func (s *stream) onSource(from int, body []byte) {
	c := cursor{b: body}
	told := source{rank: from, generation: c.u32(), epoch: int(c.u32())}
	told.digest = scheduler.Digest(c.take(len(c.b)))
	s.locked(func() { s.noteSource(told) })
}

func (s *stream) noteSource(told source) {
	if err := s.planner.sources.take(told); err != nil {
		s.endTraining(err)
	}
	s.answerPlans()
}

// endTraining refuses all from now on, where ranks or trainers differ and nobody knows who is right.
func (s *stream) endTraining(err error) {
	if s.agreed.conflict == nil {
		s.node.cfg.Log.Error("a data set cannot be served", "data", s.data.Name, "error", err)
		s.agreed.conflict = err
		s.failPlans(err)
	}
}

// sourced reports whether trainers may have the plan of an epoch: it can be made again, and all ranks have the same.
func (s *stream) sourced(epoch int) bool {
	p := &s.planner
	return !p.weighted() || p.kept[epoch] && p.sources.agreed(epoch)
}
