package runlog

import (
	"math"

	"rankpool/mpicache/stats"
)

// Quantiles are the shares of the samples for which a Distribution holds a score.
var Quantiles = [...]float64{0.05, 0.25, 0.5, 0.75, 0.95}

// A Distribution describes the scores after an epoch.
type Distribution struct {
	Epoch   int
	Samples float64
	// the scores below which these shares of the samples lie; linear within a class
	Quantiles [len(Quantiles)]float64
	Mean      float64
	// the share of the sum of scores that belongs to the highest tenth of the samples, NaN if the sum
	// is 0
	TopShare float64
}

// maxHistograms bounds the histograms kept; they are thinned out beyond that.
const maxHistograms = 32

// scores collects the importance events of the first data set that has one.
type scores struct {
	distributions []Distribution
	histograms    []Importance
	// one in so many distributions also has a histogram, a power of two; the newest always has one
	every int
}

// add adds an event. After a restart, one of the newest epoch replaces the previous one.
func (s *scores) add(i *Importance) {
	d := i.distribution()
	if n := len(s.distributions); n > 0 {
		switch last := s.distributions[n-1]; {
		case i.Data != s.histograms[0].Data || i.Epoch < last.Epoch:
			return
		case i.Epoch == last.Epoch:
			s.distributions[n-1], s.histograms[len(s.histograms)-1] = d, *i
			return
		}
	}
	s.every = max(1, s.every)
	if n := len(s.distributions); n > 0 && (n-1)%s.every != 0 {
		s.histograms[len(s.histograms)-1] = *i // the previous one was kept only because it was the newest
	} else {
		s.histograms = append(s.histograms, *i)
	}
	s.distributions = append(s.distributions, d)
	if len(s.histograms) > maxHistograms {
		s.thin()
	}
}

// thin drops every second histogram but the newest.
func (s *scores) thin() {
	s.every *= 2
	newest := s.histograms[len(s.histograms)-1]
	kept := s.histograms[:0]
	for k := 0; k < len(s.histograms)-1; k += 2 {
		kept = append(kept, s.histograms[k])
	}
	s.histograms = append(kept, newest)
}

// distribution condenses the histogram; it assumes that scores are spread evenly within a class.
func (i *Importance) distribution() Distribution {
	d := Distribution{Epoch: i.Epoch}
	sum := 0.0
	for k, count := range i.Counts {
		d.Samples += float64(count)
		sum += float64(count) * (i.Edges[k] + i.Edges[k+1]) / 2
	}
	d.Mean = stats.Ratio(sum, d.Samples)
	for k, q := range Quantiles {
		d.Quantiles[k] = i.quantile(q * d.Samples)
	}
	d.TopShare = math.NaN()
	if sum > 0 {
		d.TopShare = i.topSum(d.Samples/10) / sum
	}
	return d
}

// quantile returns the score below which n samples lie.
func (i *Importance) quantile(samples float64) float64 {
	below := 0.0
	for k, count := range i.Counts {
		if n := float64(count); n > 0 && below+n >= samples {
			return i.Edges[k] + (i.Edges[k+1]-i.Edges[k])*(samples-below)/n
		}
		below += float64(count)
	}
	return i.Edges[len(i.Counts)]
}

// topSum returns the sum of the n highest scores.
func (i *Importance) topSum(samples float64) float64 {
	sum := 0.0
	for k := len(i.Counts) - 1; k >= 0 && samples > 0; k-- {
		n := min(samples, float64(i.Counts[k]))
		if n == 0 {
			continue
		}
		low := i.Edges[k] + (i.Edges[k+1]-i.Edges[k])*(1-n/float64(i.Counts[k]))
		sum += n * (low + i.Edges[k+1]) / 2
		samples -= n
	}
	return sum
}
