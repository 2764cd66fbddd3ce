package protocol

import (
	"maps"
	"reflect"
	"slices"
)

// Ranks may serve several trainings one after another: trainers load a checkpoint during training,
// torchrun restarts them, or another training connects. Once all trainers have begun a new life,
// all ranks discard the state of the previous one, above all its importance, and the first plan is
// made as at the start. Until then trainers that have begun it wait.

// lives are those that trainers have joined, or wait to begin.
type lives struct {
	joined map[int]joined // by trainer: those that have requested a plan
	anew   map[int]place  // by trainer: where it waits to begin another life
}

// joined describes how a trainer joined the current life.
type joined struct {
	life       uint64
	turn       uint32
	begins     bool // it had no plan of this life when it joined
	first      bool // it had no life before
	checkpoint *Checkpoint
}

func noLives() lives { return lives{joined: map[int]joined{}, anew: map[int]place{}} }

// isNew reports whether a trainer has joined, and is now in a life other than the current one.
func (l *lives) isNew(trainer int, trainings []*Training) bool {
	t := trainings[trainer]
	j, ok := l.joined[trainer]
	return t != nil && ok && (j.life != t.Life || j.turn != t.Turn)
}

// join records that a trainer has joined. Trainers that begin together must resume from the same
// checkpoint.
func (l *lives) join(trainer int, trainings []*Training) error {
	t := trainings[trainer]
	if t == nil {
		return nil
	}
	was, again := l.joined[trainer]
	if again && was.life == t.Life && was.turn == t.Turn {
		return nil
	}
	j := joined{t.Life, t.Turn, len(t.Planned) == 0, !again, t.Checkpoint}
	for _, u := range slices.Sorted(maps.Keys(l.joined)) {
		other := l.joined[u]
		together := j.begins && j.first && other.begins && other.first
		if together && !reflect.DeepEqual(j.checkpoint, other.checkpoint) {
			return differentCheckpoints(u, other.checkpoint, trainer, j.checkpoint)
		}
	}
	l.joined[trainer] = j
	return nil
}

// begin records that a trainer of world begins a new life at a place. Once all trainers do, all is
// true, and the life begins at the returned place.
func (l *lives) begin(trainer int, at place, world int) (_ place, all bool) {
	l.anew[trainer] = at
	if len(l.anew) < world {
		return at, false
	}
	for _, other := range l.anew {
		at.epoch, at.batch = max(at.epoch, other.epoch), min(at.batch, other.batch)
	}
	return at, true
}
