package scheduler

// A Learner is what a system remembers of training that learns while an epoch is trained, as SHADE
// and SpiderCache do: its next epoch depends on more than the scores at the cut. Every rank has
// one, which follows training as batches are folded; so all have learned the same at the same
// batch.
//
// It is not safe for concurrent use.
type Learner interface {
	// Begin forgets everything, and begins with scores, one a sample, and with what Cut returned
	// before, nil for nothing. It keeps neither. It returns an error when learned is damaged, or of
	// other samples or another memory.
	Begin(scores []float32, learned []byte) error
	// Open takes the plan of an epoch that is trained from now on, and what Cut returned for it: the
	// Learner may keep what both have. Batches of the epoch before may follow.
	Open(p *Plan, learned Learned)
	// Learn takes a batch that was folded into scores. It may keep the batch.
	Learn(f Folded, scores []float32)
	// Cut returns what the next epoch is drawn from besides scores. It is called once an epoch, when
	// all batches before its cut are folded, with the scores then, which must not change any more. It
	// takes no time: what is a matter of all samples is made when it is asked for.
	Cut(scores []float32) Learned
}

// Learned returns the state of a Learner at a cut, as bytes: the same at any time, in any
// goroutine. It encodes them on each call. nil: no state.
type Learned func() []byte

// Known returns what was learned, as these bytes.
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
