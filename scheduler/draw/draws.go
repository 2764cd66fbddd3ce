package draw

import "math"

// Draws are the draws of one epoch, and what the sampler knows about the epochs after it.
//
// They do not change, and refer to the scores they were drawn with. Weight and Weighted may be
// called concurrently, Next may not.
type Draws struct {
	Epoch int
	// in order; draws b·B … (b+1)·B-1 are global batch b, and only the last batch may have fewer
	IDs []SampleID

	Sum      float64   // of the scores that it was drawn with; 0: they do not matter
	weights  []float32 // by draw; nil: see Weight
	after    []byte
	choice   *Choice // nil: a policy decides what is kept, and every draw is served as drawn
	forecast forecast
}

// A forecast is what a sampler knows beyond the draws of an epoch.
type forecast interface {
	next(id SampleID, score float32) float64 // see Draws.Next
	weight(id SampleID) float32              // see Draws.Weight
	weighted() bool                          // see Draws.Weighted
}

// epochsAhead is how many epochs Next looks for a sample's own arrival. A sample that is not drawn
// in 64 epochs can expect about 1/64 of a draw per epoch or less; only its order among others like
// it matters.
const epochsAhead = 64

// Next predicts when a sample will first be drawn after this epoch if its score is then score. The
// time is in epochs, e + p/L for place p of the L draws of epoch e, and e > Epoch. It comes from
// the sample's own future clock, which is known today, run at the rate of the given score; scores
// are normalised by the sum of this epoch's. A sample that is not drawn within 64 epochs gets a
// later time, in the order of expected times; one that cannot be drawn gets +Inf.
//
// torch and sequential ignore score and are exact, except for samples that torch's next epoch
// drops; the first call on torch's Draws makes the next epoch's permutation, 4 bytes per sample.
// uniform, chunks and weighted-once give the right order of samples, up to changes of the scores.
//
// Source: the project's design, "Race clocks".
func (d *Draws) Next(id SampleID, score float32) float64 { return d.forecast.next(id, score) }

// Weight returns 1/(N q), q the sample's expected share of this epoch's draws: the factor that
// makes the gradient of a weighted draw an unbiased estimate of the mean gradient. It is 1 when
// draws are not weighted, and 0 for a sample that cannot be drawn.
//
// Source: Katharopoulos and Fleuret, "Not All Samples Are Created Equal", ICML 2018, §3.1.
func (d *Draws) Weight(id SampleID) float32 { return d.forecast.weight(id) }

// WeightAt returns the weight of draw i: Weight, except where a sample's draws differ in weight.
func (d *Draws) WeightAt(i int) float32 {
	if d.weights != nil {
		return d.weights[i]
	}
	return d.Weight(d.IDs[i])
}

// Weighted reports whether some sample's Weight differs from 1. It is false for weighted-once,
// whose order depends on scores but which draws every sample once.
func (d *Draws) Weighted() bool { return d.forecast.weighted() }

// Effective returns the effective number of samples of the epoch, 1 / Σq² over the shares q of the
// draws that samples expect: as many samples, drawn equally often, have repeats as often. It takes
// O(N) for N samples, and may be called concurrently.
func (d *Draws) Effective(samples int) float64 {
	sum := 0.0
	for id := range SampleID(samples) {
		if w := float64(d.Weight(id)); w > 0 {
			sum += 1 / w / w
		}
	}
	return float64(samples) / sum * float64(samples)
}

// Variance returns the variance of the epoch's mean gradient, over that with uniform draws with
// replacement, for gradients of the lengths that scores are, and in directions that have nothing to
// do with each other: Σ (W-1)² g² / Σ g², W the sum of the weights of a sample's draws. It is 0 for
// a permutation, and 1 if all scores are 0. It takes O(N) for N samples, and may be called
// concurrently.
func (d *Draws) Variance(scores []float32) float64 {
	sums := make([]float32, len(scores))
	for i, id := range d.IDs {
		sums[id] += d.WeightAt(i)
	}
	varies, all := 0.0, 0.0
	for id, g := range scores {
		square, less := float64(g)*float64(g), float64(sums[id])-1
		all += square
		varies += float64(less * less * square)
	}
	if all == 0 {
		return 1
	}
	return varies / all
}

// unweighted is the part of a forecast in which every sample has the same share of the draws.
type unweighted struct{}

func (unweighted) weight(SampleID) float32 { return 1 }
func (unweighted) weighted() bool          { return false }

// firstEpoch looks in the epochs after epoch, one by one, for the first in which a sample is drawn.
// place returns the sample's time in an epoch, as a fraction of it: in [0, 1) if it is drawn. mean
// is the mean number of epochs between draws, for samples that are not found.
func firstEpoch(epoch int, mean float64, place func(epoch int) float64) float64 {
	for e := epoch + 1; e <= epoch+epochsAhead; e++ {
		if at := place(e); at < 1 {
			return float64(e) + at
		}
	}
	return float64(epoch+epochsAhead+1) + mean
}

// never is the time of a sample that is not drawn again.
var never = math.Inf(1)

// Pieces returns the draws of the pieces that samples are made of: in order, and with what is known
// of their next uses. next is called with a piece and the factor that a score counts by.
func (d *Draws) Pieces(ids []SampleID, next func(piece SampleID, factor float32) float64) *Draws {
	return &Draws{Epoch: d.Epoch, IDs: ids, Sum: d.Sum, forecast: pieceForecast{draw: next}}
}

// pieceForecast knows when a sample is drawn that has a piece.
type pieceForecast struct {
	unweighted
	draw func(piece SampleID, factor float32) float64
}

func (f pieceForecast) next(id SampleID, factor float32) float64 { return f.draw(id, factor) }
