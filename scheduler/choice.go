package scheduler

// Choice is an epoch as a published system chose it, including where its samples are. It replaces
// the decisions of a policy.
type Choice struct {
	Epoch  int
	Drawn  []SampleID // in order
	Served []SampleID // of each draw: the sample that is trained on
	Found  []bool     // of each draw: what is served is in memory since it was served before
	Home   []uint16   // of each draw: the rank that has it, or may keep it
	Held   []bool     // by sample: it is in memory when the epoch has ended
	// what the system resumes from when the epoch has ended, where a Learner keeps it; as bytes
	After []byte

	// Evaluated are the global batches that are not trained on: a forward pass measures their
	// losses before the cut.
	Evaluated Batches

	// Packages are in the order of their first places.
	Packages []Package
}

// A Package is samples of one rank that it may read as one piece, in the order of their draws: the
// places of the draws that they are read for, ascending.
type Package []int32

// Batches are N global batches from number First on.
type Batches struct{ First, N int }

// EvaluateAt returns where batches are evaluated in an epoch of so many, at least 1, that are
// trained on: right before that one. The losses enter the next epoch's plan, and only whole batches
// come before.
func EvaluateAt(trained int) int { return trained - max(tail(trained), 1) }

// Draws returns the draws of a choice: what is served, in the order of the draws. All weigh alike.
func (c *Choice) Draws() *Draws {
	return &Draws{Epoch: c.Epoch, IDs: c.Served, choice: c, forecast: choiceForecast{choice: c}}
}

// choiceForecast knows which samples are kept for the next epoch.
type choiceForecast struct {
	unweighted
	choice *Choice
}

func (f choiceForecast) next(id SampleID, _ float32) float64 {
	if f.choice.Held[id] {
		return float64(f.choice.Epoch+1) + 0.5
	}
	return never
}

// Chosen reports whether a published system has made the draws, and decides where samples are.
func (d *Draws) Chosen() bool { return d.choice != nil }

// Substituted reports whether draw i is served by another sample than the one drawn.
func (d *Draws) Substituted(i int) bool { return d.choice != nil && d.choice.Drawn[i] != d.IDs[i] }

// Evaluated returns the global batches that are not trained on: a forward pass measures their
// losses.
func (d *Draws) Evaluated() Batches {
	if d.choice == nil {
		return Batches{}
	}
	return d.choice.Evaluated
}

// Packages returns the samples that ranks may read as one piece, in the order of their first draws.
func (d *Draws) Packages() []Package {
	if d.choice == nil {
		return nil
	}
	return d.choice.Packages
}

// packages returns the packages of a rank.
func (p *Plan) packages(rank int) []Package {
	var own []Package
	for _, places := range p.Packages() {
		if p.Owner(int(places[0])) == rank {
			own = append(own, places)
		}
	}
	return own
}

// After is what the system that made the draws resumes from when the epoch has ended, as bytes; nil
// where the next epoch does not depend on it, or not by a Learner.
func (d *Draws) After() []byte {
	if d.choice == nil {
		return nil
	}
	return d.choice.After
}

// Has reports whether global batch b is among them.
func (r Batches) Has(b int) bool { return r.First <= b && b < r.First+r.N }

// Found reports whether draw i finds what it is served in memory, as the system that made the draws
// has it.
func (d *Draws) Found(i int) bool { return d.choice != nil && d.choice.Found[i] }

// stays returns the place of draw i as the next use of its sample, noPlace when the sample is not
// kept for it: it was dropped before.
func (d *Draws) stays(i int) int32 {
	if d.choice != nil && !d.choice.Found[i] {
		return noPlace
	}
	return int32(i)
}
