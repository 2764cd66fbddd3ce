package protocol

import (
	"maps"
	"slices"
	"time"
)

// For a checkpoint each trainer asks its rank to save. All ranks compute the same digest of the
// importance at that place, which the checkpoint will contain; rank 0 writes the state file, and
// tells the others when it is on disk: only then may a trainer know the digest.
// The end of an epoch is the beginning of the next: the state there is the same whether or not the
// next epoch is open.

// saveTimeout bounds how long a save waits for reports of other trainers, which are at most a step
// apart, and then for rank 0.
const saveTimeout = 30 * time.Second

// saves are the states that are saved for checkpoints, and who waits for them.
type saves struct {
	waiting []waitingSave       // waiting for reports
	saving  map[int]*savedState // by SaveState.ID: those not yet made known to trainers
	last    int                 // SaveState.ID

	// of the current life
	at           map[int]place // by trainer: where it asked to save last
	newest       *savedState
	onDisk       Saved // the newest that rank 0 has saved
	checkpointed bool  // the state file belongs to a checkpoint
	ofCheckpoint bool  // the state that was written last is that of a checkpoint
}

// waitingSave is a SaveWanted that waits for reports that its state must include. Rank 0 also has
// one, without a ticket, for each save on another rank: it saves the state for all.
type waitingSave struct {
	ticket   uint64 // 0: none
	at       place  // as the trainer sent it
	deadline time.Duration
}

// savedState is the importance at one place that is saved or about to be.
type savedState struct {
	at       place
	digest   Digest // "": SaveState is not done yet
	onDisk   bool   // so trainers may know it
	path     string
	waiting  []uint64      // tickets
	deadline time.Duration // until when to wait for rank 0
}

func newSaves() saves { return saves{saving: map[int]*savedState{}, at: map[int]place{}} }

// beginAnew forgets the states of the previous life, except for those that trainers wait for.
func (s *saves) beginAnew() {
	*s = saves{waiting: s.waiting, saving: s.saving, last: s.last, at: map[int]place{}}
}

// await adds a save that waits for reports.
func (s *saves) await(ticket uint64, at place, now time.Duration) {
	s.waiting = append(s.waiting, waitingSave{ticket, at, now + saveTimeout})
}

func (s *saves) cancel(ticket uint64) {
	s.waiting = slices.DeleteFunc(s.waiting, func(w waitingSave) bool { return w.ticket == ticket })
}

// overdue reports whether a save has waited too long for reports.
func (s *saves) overdue(now time.Duration) bool {
	return len(s.waiting) > 0 && now > s.waiting[0].deadline
}

// has reports whether the newest state is that of a place.
func (s *saves) has(at place) bool { return s.newest != nil && s.newest.at == at }

// attach answers a save with the newest state, now or once it is on disk.
func (s *saves) attach(ticket uint64, do func(Command)) {
	if s.newest.onDisk {
		answerSave(AnswerSave{ticket, s.newest.path, s.newest.digest}, do)
		return
	}
	s.newest.waiting = append(s.newest.waiting, ticket)
}

func answerSave(a AnswerSave, do func(Command)) {
	if a.Ticket != 0 {
		do(a)
	}
}

// saveAt requests that the state of a place, now the newest, be written; its waiting saves, the
// first with this ticket, are answered after that.
func (s *saves) saveAt(at place, ticket uint64, snap *Snapshot, do func(Command)) {
	s.newest = &savedState{at: at, waiting: []uint64{ticket}}
	s.last++
	s.saving[s.last] = s.newest
	s.save(SaveState{ID: s.last, Snap: snap}, do)
}

// save requests that a state be written. That of a checkpoint is kept until the next checkpoint.
func (s *saves) save(state SaveState, do func(Command)) {
	state.Previous, s.ofCheckpoint = s.ofCheckpoint, state.Snap.Checkpoint
	do(state)
}

// written records that a state is written here. It reports false for one that trainers do not wait
// for.
func (s *saves) written(e StateSaved, now time.Duration) bool {
	state := s.saving[e.ID]
	if state == nil {
		return false
	}
	state.digest, state.deadline = e.Digest, now+saveTimeout
	return true
}

// onSaved answers the saves whose state rank 0 has now saved.
func (s *saves) onSaved(e Saved, now time.Duration, do func(Command)) {
	s.onDisk = e
	s.answer(now, do)
}

// answer answers the saves whose state is now on disk, and those that have waited too long.
func (s *saves) answer(now time.Duration, do func(Command)) {
	for _, id := range slices.Sorted(maps.Keys(s.saving)) {
		state := s.saving[id]
		a := AnswerSave{}
		switch {
		case state.digest == "":
			continue
		case state.digest == s.onDisk.State:
			state.onDisk, state.path = true, s.onDisk.Path
			a.Path, a.State = state.path, state.digest
		case now <= state.deadline:
			continue
		case s.newest == state:
			s.newest = nil
		}
		delete(s.saving, id)
		for _, a.Ticket = range state.waiting {
			answerSave(a, do)
		}
		state.waiting = nil
	}
}
