package scheduler

import "fmt"

// A Layout is the rank of each trainer by which plans assign draws to trainers. It stays as it was
// when training began: if the job loses nodes, and the cache goes on with fewer ranks, plans still
// give each draw to the same trainer. Otherwise a trainer that has an epoch's plan and one that
// gets it later would both get some draws and both miss others.
type Layout struct {
	Ranks int
	World []int32 // rank of each trainer
}

// Consumer is a trainer's place in the Layout of the training's plans, which the trainer reports
// when it opens a data set.
type Consumer struct {
	Rank  int `json:"rank"`
	Ranks int `json:"ranks"`
	// Planned is true if the place comes from a plan; before the first plan, Rank is the one that the
	// trainer connected to.
	Planned bool `json:"planned"`
}

// Valid reports whether c can be a place of a Layout.
func (c *Consumer) Valid() bool { return c.Ranks <= maxRanks && 0 <= c.Rank && c.Rank < c.Ranks }

// maxRanks is the largest number of ranks of a plan, whose owners are uint16.
const maxRanks = 1 << 16

// layout returns the layout of the plans that trainers have or, if they have none, that of the
// given number of ranks. All trainers must have described their training.
func (a *agreement) layout(ranks int) (*Layout, error) {
	first := -1
	for t, training := range a.trainings {
		if c := training.Consumer; c != nil && c.Planned && first < 0 {
			first = t
		}
	}
	if first < 0 {
		return &Layout{ranks, a.world}, nil
	}
	l := &Layout{Ranks: a.trainings[first].Consumer.Ranks}
	for t, training := range a.trainings {
		c := training.Consumer
		if c == nil || c.Ranks != l.Ranks {
			return nil, fmt.Errorf("trainer %d has plans for %d ranks, and trainer %d none of these: "+
				"the job has lost nodes since they were made; resume from a checkpoint", first, l.Ranks, t)
		}
		l.World = append(l.World, int32(c.Rank))
	}
	return l, nil
}

// contradicts returns an error if a trainer has plans of another layout.
func (l *Layout) contradicts(trainings []*Training) error {
	for t, training := range trainings {
		if training == nil || training.Consumer == nil || !training.Consumer.Planned {
			continue
		}
		if c := training.Consumer; c.Ranks != l.Ranks || int32(c.Rank) != l.World[t] {
			return fmt.Errorf("trainer %d has plans in which it is on rank %d of %d, and here it is "+
				"on rank %d of %d: resume from a checkpoint", t, c.Rank, c.Ranks, l.World[t], l.Ranks)
		}
	}
	return nil
}
