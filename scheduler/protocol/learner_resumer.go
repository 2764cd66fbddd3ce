package protocol

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// NewResumerLearner returns the Learner of a sampler that resumes from the state after its last
// draws, and nil for other samplers. The sampler is the Learner's from now on.
func NewResumerLearner(sampler draw.Sampler) Learner {
	if r, resumes := sampler.(draw.Resumer); resumes {
		return &resumerLearner{sampler: r}
	}
	return nil
}

// A starter is a Learner whose first epoch depends on something that is saved.
type starter interface{ Start() Learned }

// resumerLearner remembers the state after the newest plan's draws. It learns nothing from training.
type resumerLearner struct {
	sampler draw.Resumer // checks states
	state   []byte
}

func (l *resumerLearner) Begin(_ []float32, learned []byte) error {
	l.state = learned
	return l.sampler.Resume(learned)
}

// Start implements starter.
func (l *resumerLearner) Start() Learned { return Known(l.sampler.Start()) }

func (l *resumerLearner) Open(p *plan.Plan, _ Learned) { l.state = p.After() }

func (l *resumerLearner) Learn(Folded, []float32) {}

func (l *resumerLearner) Cut([]float32, float32) Learned { return Known(l.state) }
