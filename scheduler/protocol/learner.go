package protocol

import (
	"rankpool/scheduler/plan"
)

// A Learner holds what a system that learns during an epoch, such as SHADE or SpiderCache,
// remembers of training: its next epoch depends on more than the scores at the cut. Every rank has
// one, which follows training as batches are folded, so at the same batch all have learned the
// same.
//
// It is not safe for concurrent use.
type Learner interface {
	// Begin forgets everything, and starts with scores, one per sample, and with what Cut returned
	// before, nil for nothing. It keeps neither slice. It returns an error if learned is damaged, or
	// belongs to other samples or to a memory of another size.
	Begin(scores []float32, learned []byte) error
	// Open receives the plan of an epoch that is trained from now on, and what Cut returned for it.
	// The Learner may keep both. Batches of the epoch before may still follow.
	Open(p *plan.Plan, learned Learned)
	// Learn receives a batch that was folded into scores. It may keep the batch.
	Learn(f Folded, scores []float32)
	// Cut returns what the next epoch is drawn from besides scores. It is called once per epoch, when
	// all batches before the cut are folded, with the scores at that time, which must not change any
	// more, and with the accuracy that training measured after the epoch before, NaN if none. That of
	// the epoch under way is not known yet. It returns quickly: work over all samples is left to the
	// call of the Learned.
	Cut(scores []float32, accuracy float32) Learned
}

// Learned returns the state of a Learner at a cut, as bytes: the same at any time, in any
// goroutine. It encodes the state on each call. nil: no state.
type Learned func() []byte

// Known returns a Learned that returns learned; nil for nil.
func Known(learned []byte) Learned {
	if learned == nil {
		return nil
	}
	return func() []byte { return learned }
}

// bytes returns what was learned, nil for nothing.
func (l Learned) bytes() []byte {
	if l == nil {
		return nil
	}
	return l()
}
