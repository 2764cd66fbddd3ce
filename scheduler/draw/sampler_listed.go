package draw

// listed is a sampler whose epochs were drawn elsewhere.
type listed []SampleID

// Listed returns a sampler whose every epoch draws ids, in order. It foresees nothing beyond an
// epoch, and weighs all draws alike. ids must not change afterwards.
func Listed(ids []SampleID) Sampler { return listed(ids) }

func (s listed) Weighted() bool { return false }

func (s listed) Draw(epoch int, _ []float32) *Draws {
	return &Draws{Epoch: epoch, IDs: s, forecast: unforeseen{}}
}

// unforeseen is the forecast of draws that are unknown until they are made.
type unforeseen struct{ unweighted }

func (unforeseen) next(SampleID, float32) float64 { return never }
