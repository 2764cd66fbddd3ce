package runlog

// Quantiles are the shares of the samples for which a Distribution holds a score.
var Quantiles = [...]float64{0.05, 0.25, 0.5, 0.75, 0.95}

// A Distribution describes the scores after an epoch.
type Distribution struct {
	Epoch   int
	Samples float64
	// the scores below which these shares of the samples lie; linear within a class
	Quantiles [len(Quantiles)]float64
}

// scores collects the importance events of the first data set that has one.
type scores struct {
	data          string
	distributions []Distribution
}

// add adds an event. After a restart, one of the newest epoch replaces the previous one.
func (s *scores) add(i *Importance) {
	d := i.distribution()
	if n := len(s.distributions); n > 0 {
		switch last := s.distributions[n-1]; {
		case i.Data != s.data || i.Epoch < last.Epoch:
			return
		case i.Epoch == last.Epoch:
			s.distributions[n-1] = d
			return
		}
	}
	s.data, s.distributions = i.Data, append(s.distributions, d)
}

// distribution condenses the histogram; it assumes that scores are spread evenly within a class.
func (i *Importance) distribution() Distribution {
	d := Distribution{Epoch: i.Epoch}
	for _, count := range i.Counts {
		d.Samples += float64(count)
	}
	for k, q := range Quantiles {
		d.Quantiles[k] = i.quantile(q * d.Samples)
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
