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

// resumerLearner remembers the state after the newest plan's draws. It learns nothing from
// training.
type resumerLearner struct {
	sampler draw.Resumer // checks states
	state   []byte
}

func (l *resumerLearner) Begin(_ []float32, learned []byte) error {
	if l.state = learned; learned == nil {
		l.state = l.sampler.Start()
	}
	return l.sampler.Resume(learned)
}

func (l *resumerLearner) Open(p *plan.Plan, _ Learned) { l.state = p.After() }

func (l *resumerLearner) Learn(Folded, []float32) {}

func (l *resumerLearner) Cut([]float32, float32) Learned { return Known(l.state) }
