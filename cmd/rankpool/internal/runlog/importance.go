package runlog

import "math"

// Quantiles are the parts of the samples for which a Distribution knows the score.
var Quantiles = [...]float64{0.05, 0.25, 0.5, 0.75, 0.95}

// A Distribution is how scores lie after an epoch.
type Distribution struct {
	Epoch   int
	Samples float64
	// the score below which that part of the samples is; straight lines in a class
	Quantiles [len(Quantiles)]float64
	Mean      float64
	// of the sum of scores that the highest tenth of the samples has, NaN where the sum is 0
	TopShare float64
}

// maxHistograms are kept, thinned out when there are more.
const maxHistograms = 32

// scores keeps what importance events say of the first data set that has one.
type scores struct {
	distributions []Distribution
	histograms    []Importance
	// of the distributions that also have a histogram, as a power of two; the newest always has
	every int
}

// add takes an event. One of the newest epoch again, after a restart, replaces it.
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
	if s.every == 0 {
		s.every = 1
	}
	if n := len(s.distributions); n > 0 && (n-1)%s.every != 0 {
		s.histograms[len(s.histograms)-1] = *i // the one before was there only because it was the newest
	} else {
		s.histograms = append(s.histograms, *i)
	}
	s.distributions = append(s.distributions, d)
	if len(s.histograms) > maxHistograms {
		s.thin()
	}
}

// thin leaves out every second histogram but the newest.
func (s *scores) thin() {
	s.every *= 2
	newest := s.histograms[len(s.histograms)-1]
	kept := s.histograms[:0]
	for k := 0; k < len(s.histograms)-1; k += 2 {
		kept = append(kept, s.histograms[k])
	}
	kept = append(kept, newest)
	s.histograms = kept
}

// distribution sums up the histogram; in a class scores are taken to lie evenly.
func (i *Importance) distribution() Distribution {
	d := Distribution{Epoch: i.Epoch}
	sum := 0.0
	for k, count := range i.Counts {
		d.Samples += float64(count)
		sum += float64(count) * (i.Edges[k] + i.Edges[k+1]) / 2
	}
	d.Mean = Ratio(sum, d.Samples)
	for k, q := range Quantiles {
		d.Quantiles[k] = i.quantile(q * d.Samples)
	}
	d.TopShare = math.NaN()
	if sum > 0 {
		d.TopShare = i.topSum(d.Samples/10) / sum
	}
	return d
}

// quantile is the score below which so many samples are.
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

// topSum is the sum of the scores of so many samples with the highest ones.
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
