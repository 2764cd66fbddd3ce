package draw

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A regression is a problem of logistic regression: by sample, features and the class, 1 or -1.
type regression struct {
	features [][]float64
	class    []float64
}

// newRegression returns points of a square. Those in a disc are of class 1, the others of class -1,
// but a share of the classes is wrong.
func newRegression(samples int, wrong float64, random *rand.Rand) (p regression) {
	for range samples {
		x, y := 4*random.Float64()-2, 4*random.Float64()-2
		class := 1.0
		if (x*x+y*y < 2) == (random.Float64() < wrong) {
			class = -1
		}
		p.features = append(p.features,
			[]float64{1, x, y, x * x, x * y, y * y, x * x * x, y * y * y, x * x * y, x * y * y})
		p.class = append(p.class, class)
	}
	return p
}

// margin is above 0 if the model finds the sample's class.
func (p *regression) margin(model []float64, id SampleID) (sum float64) {
	for k, x := range p.features[id] {
		sum += model[k] * x
	}
	return sum * p.class[id]
}

// train returns a model trained by gradient descent on the weighted means of the losses of batches.
// The losses are the scores.
func (p *regression) train(s Sampler, batchSize int) []float64 {
	const epochs, learningRate = 20, 3
	model, scores := make([]float64, len(p.features[0])), slices.Repeat([]float32{1}, len(p.class))
	for epoch := range epochs {
		d := s.Draw(epoch, slices.Clone(scores))
		for batch := range slices.Chunk(d.IDs, batchSize) {
			at := slices.Clone(model)
			for _, id := range batch {
				margin := p.margin(at, id)
				scores[id] = float32(max(0, -margin) + math.Log1p(math.Exp(-math.Abs(margin))))
				step := learningRate * float64(d.Weight(id)) / float64(batchSize) * p.class[id] /
					(1 + math.Exp(margin))
				for k, x := range p.features[id] {
					model[k] += step * x
				}
			}
		}
	}
	return model
}

// accuracy returns the share of the samples whose class the model finds.
func (p *regression) accuracy(model []float64) float64 {
	right := 0
	for id := range p.class {
		if p.margin(model, SampleID(id)) > 0 {
			right++
		}
	}
	return float64(right) / float64(len(p.class))
}

// TestWeightedTrains checks that training by weighted draws, with their weights, ends as accurate
// as by uniform draws. Without a floor it does not: steps with weights of thousands ruin the model.
func TestWeightedTrains(t *testing.T) {
	const samples, batchSize, seeds, tolerance = 500, 16, 8, 0.05
	accuracy := func(name string, floor float64) (mean float64) {
		for seed := range int64(seeds) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			train := newRegression(samples, 0.02, random)
			test := newRegression(1000, 0, random)
			model := train.train(mustSampler(t, SamplerConfig{
				Name: name, Samples: samples, Seed: seed, BatchSize: batchSize, World: 1, Floor: floor,
			}), batchSize)
			mean += test.accuracy(model) / seeds
		}
		return mean
	}
	uniform, weighted, bare := accuracy("uniform", 0), accuracy("weighted", 0),
		accuracy("weighted", NoFloor)
	if weighted < uniform-tolerance {
		t.Errorf("weighted draws train to an accuracy of %.3f, uniform ones to %.3f", weighted, uniform)
	}
	if bare >= uniform-tolerance {
		t.Errorf("without a floor, weighted draws train to an accuracy of %.3f, uniform ones to %.3f: "+
			"the problem does not need a floor", bare, uniform)
	}
}
