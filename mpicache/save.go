package mpicache

import (
	"time"

	"rankpool/scheduler"
)

// A training that makes a checkpoint asks each rank to save (SAVE), each trainer its own. All ranks come to the digest of
// the importance as it is at that place, which the checkpoint will name; rank 0 writes it to the state file. The place at
// the end of an epoch is the begin of the next: there the state is the same, whether the next epoch is open or not.

// waitingSave is a SAVE that waits for the reports that it is to hold.
type waitingSave struct {
	conn     *conn
	ticket   uint32
	at       place // as training says it
	deadline time.Time
}

// savedState is the importance of one place, which is or will be saved.
type savedState struct {
	at      place
	done    bool
	answer  saveAnswer
	waiting []waitingSave
}

// saveAnswer is the reply to SAVE.
type saveAnswer struct {
	Saved string           `json:"saved"` // the state file; "": there is none
	State scheduler.Digest `json:"state"` // "": nothing depends on importance, or not all reports came
}

// saveTimeout bounds how long SAVE waits for reports of other trainers, which are within a step of each other.
const saveTimeout = 30 * time.Second

// onSave answers SAVE when the reports of all trainers before the batch are in the state, and the state is on disk.
func (s *stream) onSave(c *conn, ticket uint32, f placeFrame) (err error) {
	s.locked(func() {
		if err = s.checkSave(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		if s.stager != nil && !s.planner.weighted() {
			s.reply(c, appendJSON(nil, KindSave+replyTo, ticket, saveAnswer{}))
			return
		}
		p := &s.planner
		if err = s.join(int(c.trainer)); err != nil {
			err = refuse("%s", err)
			return
		}
		at := place{int(f.epoch), int(f.batch)}
		p.saves = append(p.saves, waitingSave{c, ticket, at, time.Now().Add(saveTimeout)})
		s.outRecord(recordSave, int(c.trainer), at.epoch, at.batch, nil)
		s.flushReports()
		s.saves(int(c.trainer), at)
		if p.ledger == nil && s.isNext(at.epoch) {
			s.want(at.epoch, at.batch) // this rank was started again
		}
	})
	return err
}

// saves notes that a trainer is to save at a place: what it has not reported before that it never will.
func (s *stream) saves(trainer int, at place) {
	p := &s.planner
	p.checkpointed = true
	p.savesAt[trainer] = at
	if p.folds() {
		s.settle(trainer)
		s.fold()
	}
	s.answerSaves()
}

// settle ends the epoch of a trainer that saves at its end.
func (s *stream) settle(trainer int) {
	p := &s.planner
	newest, ok := p.ledger.Newest()
	if at, told := p.savesAt[trainer]; ok && told && s.canonical(at) == (place{newest + 1, 0}) {
		p.ledger.Finish(trainer, newest+1)
	}
}

// canonical returns the place by the epoch that begins there.
func (s *stream) canonical(at place) place {
	if plan := s.planOf(at.epoch); plan != nil && at.batch >= plan.Batches() {
		return place{at.epoch + 1, 0}
	}
	return at
}

// answerSaves answers every SAVE whose state is complete, or has waited too long.
func (s *stream) answerSaves() {
	p := &s.planner
	rest := p.saves[:0]
	for _, w := range p.saves {
		at := s.canonical(w.at)
		switch {
		case p.saved != nil && p.saved.at == at:
			s.attach(p.saved, w)
		case p.folds() && s.complete(at):
			p.saved = &savedState{at: at, waiting: []waitingSave{w}}
			s.saveAt(p.saved)
		case time.Now().After(w.deadline):
			s.reply(w.conn, appendJSON(nil, KindSave+replyTo, w.ticket, saveAnswer{}))
		default:
			rest = append(rest, w)
		}
	}
	p.saves = rest
}

func (s *stream) attach(state *savedState, w waitingSave) {
	if state.done {
		s.reply(w.conn, appendJSON(nil, KindSave+replyTo, w.ticket, state.answer))
		return
	}
	state.waiting = append(state.waiting, w)
}

// complete reports whether all reports before a place are in the ledger, and the place is one that it can describe.
func (s *stream) complete(at place) bool {
	p := &s.planner
	newest, ok := p.ledger.Newest()
	if !ok {
		return false
	}
	switch {
	case at.epoch == newest:
		for t := range s.agreed.world {
			finished, known := p.finish[t]
			here := p.ledger.FinalOf(t, newest) >= at.batch && (at.batch > 0 || known && finished.epoch >= newest)
			if told, ok := p.savesAt[t]; !here && (!ok || s.canonical(told) != at) {
				return false
			}
		}
		return true
	case at == place{newest + 1, 0}:
		plan := s.planOf(newest)
		return plan != nil && p.haveCut && p.ledger.Final(newest) == plan.Batches()
	}
	return false
}

// saveAt hashes and writes the state of a place, beside the stream, and then answers those who wait for it.
func (s *stream) saveAt(state *savedState) {
	p := &s.planner
	var snap *scheduler.Snapshot
	if newest, _ := p.ledger.Newest(); state.at.epoch == newest {
		snap = p.ledger.Snapshot(p.base, state.at.batch)
		snap.Final = state.at.batch // also of trainers that report nothing
	} else {
		snap = p.ledger.SnapshotNext(p.cut)
	}
	snap.Stream, snap.Checkpoint = s.streamID(), true
	go func() {
		digest := snap.Digest()
		s.locked(func() {
			s.saveState(snap, true, func(path string) {
				go s.locked(func() { s.wasSaved(state, saveAnswer{path, digest}) })
			})
		})
	}()
}

func (s *stream) wasSaved(state *savedState, answer saveAnswer) {
	state.done, state.answer = true, answer
	for _, w := range state.waiting {
		s.attach(state, w)
	}
	state.waiting = nil
}
