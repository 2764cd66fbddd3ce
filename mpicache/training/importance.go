package training

import (
	"math"
	"slices"
	"sync"
	"time"

	"rankpool/scheduler/protocol"
)

// importanceBins is the number of bars of an importance histogram in the run log.
const importanceBins = 40

// ImportanceRecord is a line of the run log: the distribution of the scores that an epoch was drawn
// by.
type ImportanceRecord struct {
	Event string    `json:"event"`
	Time  time.Time `json:"time"`
	Data  string    `json:"data"`
	Epoch int       `json:"epoch"`
	// one more than Counts: Counts[i] samples have scores in [Edges[i], Edges[i+1]); the last bin
	// includes its end
	Edges  []float64 `json:"edges"`
	Counts []int64   `json:"counts"`
	// see draw.Draws.Effective; 0: all samples have an equal share of the draws
	EffectiveSamples float64 `json:"effective_samples,omitempty"`
	// see draw.Draws.Variance, of these scores; 0: draws are not weighted
	Variance float64 `json:"gradient_variance,omitempty"`
}

// leastEffective is the effective number of samples, as a share of all, below which rank 0 warns.
const leastEffective = 0.3

// importance writes lines of the run log about the scores of a training.
type importance struct {
	of        *Training
	recording sync.WaitGroup // lines in progress
	// warns once that few samples get most of the draws
	fewSamples sync.Once
}

// record writes the distribution of the scores that an epoch's plan was made from, and
// warns once if few samples get most of the draws.
func (i *importance) record(train protocol.Train) {
	s := i.of
	if s.job != "" || s.rank.Counted == nil || len(train.Scores) == 0 || s.rank.NodeEvery <= 0 {
		return
	}
	i.recording.Go(func() {
		rec := i.histogram(train.Epoch, train.Scores)
		if train.Draws.Weighted() {
			rec.Variance = train.Draws.Variance(train.Scores)
			rec.EffectiveSamples = train.Draws.Effective(len(train.Scores))
			if rec.EffectiveSamples < leastEffective*float64(len(train.Scores)) {
				i.warnFewSamples(&rec, len(train.Scores))
			}
		}
		s.rank.Record(rec)
	})
}

func (i *importance) warnFewSamples(rec *ImportanceRecord, samples int) {
	i.fewSamples.Do(func() {
		i.of.rank.Log.Warn("few samples get most of the draws: training may learn less than from "+
			"equal draws; the sampler pads draws more evenly, and so does --system "+
			"rankpool,floor=0.5",
			"data set", i.of.data.Name, "epoch", rec.Epoch, "effective samples",
			int64(rec.EffectiveSamples), "of", samples)
	})
}

func (i *importance) histogram(epoch int, scores []float32) ImportanceRecord {
	low, high := slices.Min(scores), slices.Max(scores)
	rec := ImportanceRecord{
		Event: "importance", Time: time.Now().UTC(), Data: i.of.data.Name, Epoch: epoch,
		Edges: make([]float64, importanceBins+1), Counts: make([]int64, importanceBins),
	}
	width := (float64(high) - float64(low)) / importanceBins
	if width == 0 {
		// all are equal: they go into the first bin
		width = math.Max(math.Abs(float64(high)), 1) / importanceBins
	}
	for n := range rec.Edges {
		rec.Edges[n] = float64(low) + width*float64(n)
	}
	for _, v := range scores {
		rec.Counts[min(importanceBins-1, int((float64(v)-float64(low))/width))]++
	}
	return rec
}
