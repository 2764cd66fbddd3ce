package draw

// sequentialSampler draws the samples 0 … N-1 in this order in every epoch. The last global batch
// has the rest, unless it is dropped.
type sequentialSampler struct {
	draws int
}

func newSequentialSampler(cfg SamplerConfig) Sampler {
	s := sequentialSampler{draws: cfg.Samples}
	if cfg.DropLast {
		s.draws -= s.draws % cfg.globalBatch()
	}
	return s
}

func (s sequentialSampler) Weighted() bool { return false }

func (s sequentialSampler) Draw(epoch int, _ []float32) *Draws {
	return &Draws{
		Epoch: epoch, IDs: inOrder(s.draws, 0),
		forecast: sequentialForecast{epoch: epoch, draws: s.draws},
	}
}

type sequentialForecast struct {
	unweighted
	epoch, draws int
}

func (f sequentialForecast) next(id SampleID, _ float32) float64 {
	if int(id) >= f.draws {
		return never
	}
	return float64(f.epoch+1) + float64(id)/float64(f.draws)
}
