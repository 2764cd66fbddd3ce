package draw

// Choice is an epoch as a published system chose it, including where its samples are. It replaces
// the decisions of a policy.
type Choice struct {
	Epoch  int
	Drawn  []SampleID // in order
	Served []SampleID // by draw: the sample that is trained on
	Found  []bool     // by draw: what is served is in memory because it was served before
	Home   []uint16   // by draw: the rank that has what is served, or may keep it
	Held   []bool     // by sample: it is in memory at the end of the epoch
	// the state that the system resumes from after the epoch, encoded, if a Learner keeps it
	After []byte

	// Evaluated are the global batches that are not trained on: a forward pass measures their
	// losses before the cut.
	Evaluated Batches

	// Packages are in the order of their first places.
	Packages []Package
}

// A Package is a group of samples that one rank may read in one piece: the places of the draws that
// they are read for, ascending.
type Package []int32

// Batches are the N global batches from First on.
type Batches struct{ First, N int }

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

// Chosen reports whether a published system made the draws and decides where samples are.
func (d *Draws) Chosen() bool { return d.choice != nil }

// Substituted reports whether draw i is served with a sample other than the one drawn.
func (d *Draws) Substituted(i int) bool { return d.choice != nil && d.choice.Drawn[i] != d.IDs[i] }

// Drawn returns what was drawn, by draw; IDs are what is served.
func (d *Draws) Drawn() []SampleID {
	if d.choice == nil {
		return d.IDs
	}
	return d.choice.Drawn
}

// Evaluated returns the global batches that are not trained on: a forward pass measures their
// losses.
func (d *Draws) Evaluated() Batches {
	if d.choice == nil {
		return Batches{}
	}
	return d.choice.Evaluated
}

// Packages returns the groups of samples that ranks may read in one piece, in the order of their
// first draws.
func (d *Draws) Packages() []Package {
	if d.choice == nil {
		return nil
	}
	return d.choice.Packages
}

// Homes returns, by draw, the rank that has what is served, or may keep it; nil if no published
// system decides that.
func (d *Draws) Homes() []uint16 {
	if d.choice == nil {
		return nil
	}
	return d.choice.Home
}

// After returns the encoded state that the system that made the draws resumes from after the epoch;
// nil if the next epoch depends on no such state, or on none that a Learner keeps.
func (d *Draws) After() []byte {
	if d.choice == nil {
		return d.after
	}
	return d.choice.After
}

// Has reports whether global batch b is one of r.
func (r Batches) Has(b int) bool { return r.First <= b && b < r.First+r.N }

// Found reports whether, according to the system that made the draws, what draw i is served is in
// memory.
func (d *Draws) Found(i int) bool { return d.choice != nil && d.choice.Found[i] }
