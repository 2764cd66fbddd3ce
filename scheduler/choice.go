package scheduler

// Choice is an epoch as a published system has it, which says where its samples are. It takes the place of what a policy would decide.
type Choice struct {
	Epoch  int
	Drawn  []SampleID // in order
	Served []SampleID // of each draw: the sample that is trained on
	Found  []bool     // of each draw: what is served is in memory since it was served before
	Home   []uint16   // of each draw: the rank that has it, or may keep it
	Held   []bool     // by sample: it is in memory when the epoch has ended
}

// Draws returns the draws of a choice: what is served, in the order of the draws. All weigh alike.
func (c *Choice) Draws() *Draws {
	return &Draws{Epoch: c.Epoch, IDs: c.Served, choice: c, forecast: choiceForecast{choice: c}}
}

// choiceForecast knows of the epoch after what is kept for it.
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

// Chosen reports whether a published system has made the draws, and says where samples are.
func (d *Draws) Chosen() bool { return d.choice != nil }

// Substituted reports whether draw i is served by another sample than the one drawn.
func (d *Draws) Substituted(i int) bool { return d.choice != nil && d.choice.Drawn[i] != d.IDs[i] }

// Found reports whether draw i finds what it is served in memory, as the system that made the draws has it.
func (d *Draws) Found(i int) bool { return d.choice != nil && d.choice.Found[i] }

// stays returns the place of draw i as the next use of its sample, noPlace when the sample is not kept for it: it was dropped before.
func (d *Draws) stays(i int) int32 {
	if d.choice != nil && !d.choice.Found[i] {
		return noPlace
	}
	return int32(i)
}
