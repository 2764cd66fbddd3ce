package protocol

import (
	"maps"
	"math"
	"slices"
)

// importance is what the plans of one life are made from: scores, and what a system chooses by or
// has learned besides.
type importance struct {
	// nil until the first epoch is requested, or if the sampler uses no scores
	ledger   *Ledger
	restored *Snapshot
	cut      []float32 // scores for the plan after the newest epoch, nil until they are known
	made     *planning // the newest epoch's
	// of the epochs planned before, in order, if a system chooses by them
	cuts    []Cut
	learner Learner // nil: nothing is learned but scores
	learned Learned // from learner, when cut was taken
	scored  bool    // the stager has received scores
	// by epoch; of the trainer with the lowest number, if several have measured one
	accuracies map[int]Measured
}

// begin creates the ledger for a spec from an origin. equal returns equal scores.
func (i *importance) begin(
	from origin, scorer Scorer, spec *Spec, equal func() []float32,
) error {
	ledger, learned := (*Ledger)(nil), Learned(nil)
	switch {
	case from.snap == nil:
		ledger = NewLedger(scorer, equal())
	case from.alone:
		ledger = NewLedger(scorer, RestoreLedger(scorer, from.snap, spec.World, false).FoldAll())
	default:
		ledger, learned = RestoreLedger(scorer, from.snap, spec.World, from.sameTrainers),
			from.snap.Learned
	}
	if i.learner != nil {
		if err := i.learner.Begin(ledger.Scores(), learned.bytes()); err != nil {
			return err
		}
	}
	ledger.Embed(spec.Embeddings)
	i.ledger = ledger
	if from.snap == nil || from.alone {
		return nil
	}
	i.restored, i.cuts = from.snap, from.snap.Cuts
	i.cut, i.learned = from.snap.Scores, learned
	return nil
}

// restores reports whether the ledger was restored at epoch, which is not open yet.
func (i *importance) restores(epoch int) bool {
	return i.restored != nil && i.restored.Epoch == epoch
}

// folds reports whether the ledger accepts reports. A restored ledger does not until the epoch that
// it was restored at is open; reports that arrive before are held, and folded first.
func (i *importance) folds() bool { return i.ledger != nil && i.restored == nil }

func (i *importance) report(r Trained, do func(Command)) {
	if err := i.ledger.Report(r.Trainer, r.Epoch, r.Batch, r.Losses, r.Embeddings); err != nil {
		do(Log{LogError, "a report was not taken", r.Rank, err})
	}
}

// fold folds what is final, and refreshes predictions. It reports whether the cut was reached.
func (i *importance) fold(do func(Command)) (ready bool) {
	return i.ledger.Fold(func(f Folded) {
		scored := i.ledger.Rescore(f)
		if i.learner != nil {
			i.learner.Learn(f, i.ledger.Scores())
		}
		do(scored)
	})
}

// settle ends the newest epoch of a trainer that saves at a place, if that is its end.
func (i *importance) settle(trainer int, at place) {
	if next := (place{i.ledger.newest() + 1, 0}); at == next {
		i.ledger.Finish(trainer, next.epoch)
	}
}

// takeCut records what the next epoch is planned from.
func (i *importance) takeCut() {
	i.cut = i.ledger.Take()
	if i.learner != nil {
		accuracy := float32(math.NaN())
		if m, measured := i.accuracies[max(i.ledger.newest(), 0)-1]; measured {
			accuracy = m.Accuracy
		}
		i.learned = i.learner.Cut(i.cut, accuracy)
	}
}

// accuraciesKept is of how many epochs accuracies are kept; the next cut needs that of one.
const accuraciesKept = 4

// measure records an accuracy.
func (i *importance) measure(m Measured) {
	if other, known := i.accuracies[m.Epoch]; known && other.Trainer < m.Trainer {
		return
	}
	if i.accuracies == nil {
		i.accuracies = map[int]Measured{}
	}
	i.accuracies[m.Epoch] = m
	if len(i.accuracies) > accuraciesKept {
		delete(i.accuracies, slices.Min(slices.Collect(maps.Keys(i.accuracies))))
	}
}

// open opens the epoch of a plan in the ledger; trained of its batches were trained before. With
// chooses, a system chooses by the cuts. It reports whether the epoch was restored.
func (i *importance) open(made *planning, trained int, chooses bool) (restored bool) {
	plan := made.plan
	if chooses {
		i.cuts = append(i.cutsBefore(plan.Epoch), Cut{plan.Epoch, made.base})
	}
	i.ledger.Open(plan)
	maps.DeleteFunc(i.accuracies, func(epoch int, _ Measured) bool { return epoch < plan.Epoch-1 })
	if i.learner != nil {
		i.learner.Open(plan, made.learned)
	}
	restored = i.restores(plan.Epoch)
	if restored {
		i.ledger.Resume(i.restored, trained)
	}
	i.restored = nil
	return restored
}

// stage passes a plan to the stager, which must have scores by then: it uses them as soon as
// batches enter its window.
func (i *importance) stage(s Stage, do func(Command)) {
	if i.ledger != nil && !i.scored {
		i.scored = true
		do(i.ledger.Rescore(Folded{Epoch: -1}))
	}
	do(s)
}

// sourceOf returns the state that an epoch's plan was made from, or can be made again from.
func (i *importance) sourceOf(m *planning, stream StreamID) *Snapshot {
	if i.restores(m.epoch) {
		again := *i.restored
		again.Stream = stream
		return &again
	}
	snap := &Snapshot{Epoch: m.epoch, Scores: m.base}
	switch i.ledger.newest() {
	case m.epoch:
		snap = i.ledger.Snapshot(m.base, 0)
	case m.epoch - 1:
		snap = i.ledger.SnapshotNext(m.base)
	}
	i.describe(snap, m.learned, stream)
	return snap
}

// stateAt returns the state of a place for a checkpoint. All reports before it have arrived.
func (i *importance) stateAt(at place, stream StreamID) *Snapshot {
	var snap *Snapshot
	if at.epoch == i.ledger.newest() {
		i.ledger.settle(at.batch)
		snap = i.ledger.Snapshot(i.made.base, at.batch)
		snap.Final = at.batch // even if trainers report nothing
		i.describe(snap, i.made.learned, stream)
	} else {
		if i.cut == nil {
			i.takeCut() // nothing is planned after the last epoch
		}
		snap = i.ledger.SnapshotNext(i.cut)
		i.describe(snap, i.learned, stream)
	}
	snap.Checkpoint = true
	return snap
}

// describe fills in what a snapshot's plan is made from besides scores.
func (i *importance) describe(snap *Snapshot, learned Learned, stream StreamID) {
	snap.Stream, snap.Cuts = stream, i.cutsBefore(snap.Epoch)
	snap.Learned = learned
}

// cutsBefore returns the cuts of the epochs before epoch. The caller may keep the result.
func (i *importance) cutsBefore(epoch int) []Cut {
	n := 0
	for n < len(i.cuts) && i.cuts[n].Epoch < epoch {
		n++
	}
	return i.cuts[:n:n]
}
