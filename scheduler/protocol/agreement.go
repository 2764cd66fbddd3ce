package protocol

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// Spec is a trainer's request when it opens a data set. It must be the same for all trainers,
// except for Trainer and Training.
type Spec struct {
	Data            string `json:"data"`
	Job             string `json:"job,omitempty"` // the training's name, or ""
	Identity        string `json:"identity"`      // of the data set, as the trainer knows it
	Sampler         string `json:"sampler"`
	Seed            int64  `json:"seed"`
	BatchSize       int    `json:"batch_size"`
	DropLast        bool   `json:"drop_last"`
	SamplerDropLast bool   `json:"sampler_drop_last"`
	Assign          string `json:"assign"` // "local", "sampler", or "": as the rank was started
	Trainer         int    `json:"trainer"`
	World           int    `json:"world"`
	// number of epochs to train; 0: unknown, or not used by the system
	Epochs int `json:"epochs,omitempty"`
	// the trainer does not train on batches that are to be evaluated
	Evaluates bool `json:"evaluates,omitempty"`
	// length of the embedding reported with each loss; 0: none, or not used by the system
	Embeddings int `json:"embeddings,omitempty"`
	// sampler chunks only: the chunk that epoch 0 begins with
	FirstChunk int `json:"first_chunk,omitempty"`

	Training *Training `json:"training"` // nil for a DataLoader's worker
}

// SamplerConfig describes the sampler that the spec requests, without a system's options.
func (spec *Spec) SamplerConfig(samples int) draw.SamplerConfig {
	processes := 0
	if t := spec.Training; t != nil && t.Checkpoint != nil {
		processes = t.Checkpoint.Processes
	}
	return draw.SamplerConfig{
		Name: spec.Sampler, Samples: samples, Seed: spec.Seed,
		BatchSize: spec.BatchSize, World: spec.World, Processes: processes,
		DropLast: spec.DropLast, SamplerDropLast: spec.SamplerDropLast,
		FirstChunk: spec.FirstChunk,
	}
}

// leastListed is how many draws of an epoch the trainers may hand in together, if the data set is
// small.
const leastListed = 1 << 20

// Listed reports whether the trainers hand in what they draw.
func (spec *Spec) Listed() bool { return spec.Sampler == draw.InList }

// Draws returns the largest number of draws of a trainer in an epoch. Those that are handed in may
// draw each sample four times: what is longer is handed in as several epochs.
func (spec *Spec) Draws(samples int) int {
	if spec.Listed() {
		most := min(max(4*samples, leastListed), math.MaxInt32)
		return (most + spec.World - 1) / spec.World
	}
	return spec.Batches(samples) * spec.BatchSize
}

// Batches returns the largest number of global batches in an epoch; some samplers draw fewer. There
// are at most as many evaluated batches in addition.
func (spec *Spec) Batches(samples int) int {
	if spec.Listed() {
		return spec.Draws(samples)
	}
	b := spec.BatchSize * spec.World
	n := (samples + b - 1) / b
	if spec.Evaluates {
		n *= 2
	}
	return n
}

// agreement collects the specs of the trainers of all ranks. If a spec differs before all trainers
// have opened the data set, all are refused, since it is unknown which one is right. Later, or in
// place of a trainer that has opened it, the trainer is a newcomer and is refused alone.
type agreement struct {
	spec    *Spec
	world   []int32 // rank of each trainer, -1 before it opens the data set
	missing int     // trainers that have not opened it
	// trainings has each trainer's description of its training; nil if only its workers have come.
	trainings []*Training
	conflict  error
}

// field is a field of two descriptions, with both values.
type field struct {
	name string
	a, b any
}

// unequal returns the first of the fields whose values differ; one without a name if there is none.
func unequal(fields []field) field {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.a != f.b }); i >= 0 {
		return fields[i]
	}
	return field{}
}

// difference returns the first field in which two specs of one training differ.
func difference(a, b Spec) field {
	return unequal([]field{
		{"sampler", a.Sampler, b.Sampler},
		{"seed", a.Seed, b.Seed},
		{"batch_size", a.BatchSize, b.BatchSize},
		{"drop_last", a.DropLast, b.DropLast},
		{"sampler_drop_last", a.SamplerDropLast, b.SamplerDropLast},
		{"assign", a.Assign, b.Assign},
		{"world_size", a.World, b.World},
		{"epochs", a.Epochs, b.Epochs},
		{"embeddings", a.Embeddings, b.Embeddings},
		{"first_chunk", a.FirstChunk, b.FirstChunk},
	})
}

// newcomer returns an error if the spec differs from that of a training that has begun: all of its
// trainers have opened the data set, or this one has, on this rank.
func (a *agreement) newcomer(spec Spec, rank int) error {
	if a.spec == nil || a.missing > 0 && !a.has(spec.Trainer, rank) {
		return nil
	}
	if f := difference(*a.spec, spec); f.name != "" {
		return fmt.Errorf("data set %s is being trained on with %s %#v, but trainer %d requests %#v; "+
			"give it its own cache, in a separate run", spec.Data, f.name, f.a, spec.Trainer, f.b)
	}
	return nil
}

// mayOpen returns why a trainer may not open the data set here, apart from a conflict.
func (a *agreement) mayOpen(e Opened) error {
	if err := a.newcomer(e.Spec, e.Rank); err != nil {
		return err
	}
	if e.Taken != "" {
		return errors.New(e.Taken)
	}
	return nil
}

// open handles the spec of a trainer on rank and reports whether it is new. The error is a conflict
// of all trainers, or concerns the newcomer alone.
func (a *agreement) open(spec Spec, rank int) (news bool, err error) {
	if a.conflict != nil {
		return false, a.conflict
	}
	if a.spec == nil {
		first := spec
		first.Training = nil
		a.spec = &first
		a.world, a.trainings = make([]int32, spec.World), make([]*Training, spec.World)
		a.missing = spec.World
		for t := range a.world {
			a.world[t] = -1
		}
	}
	if err := a.newcomer(spec, rank); err != nil {
		return false, err
	}
	if f := difference(*a.spec, spec); f.name != "" {
		a.conflict = fmt.Errorf("the trainers disagree on data set %s: trainer %d has %s %v, trainer "+
			"%d has %v", spec.Data, a.spec.Trainer, f.name, f.a, spec.Trainer, f.b)
		return false, a.conflict
	}
	switch at := a.world[spec.Trainer]; {
	case at == int32(rank):
		return a.note(spec), nil
	case at == -1:
		a.world[spec.Trainer] = int32(rank)
		a.missing--
		a.note(spec)
		return true, nil
	default:
		err := fmt.Errorf("trainer %d opened data set %s on rank %d and on rank %d; give every "+
			"training process its own RANK", spec.Trainer, spec.Data, at, rank)
		if a.missing > 0 {
			a.conflict = err
		}
		return false, err
	}
}

// note records a trainer's description of its training, and reports whether it is new.
func (a *agreement) note(spec Spec) bool {
	before := a.trainings[spec.Trainer]
	if spec.Training == nil || reflect.DeepEqual(before, spec.Training) {
		return false
	}
	if before != nil && before.Life == spec.Training.Life && before.Turn > spec.Training.Turn {
		return false
	}
	a.trainings[spec.Trainer] = spec.Training
	return true
}

// mostNamed is how many trainers a sentence names.
const mostNamed = 8

// whoIsMissing names the trainers that have not opened the data set or, if all have, those whose
// loader workers have opened it but not they themselves.
func (a *agreement) whoIsMissing() string {
	what := "have not come"
	if a.missing == 0 {
		what = "have not come themselves, only their DataLoader's workers have"
	}
	var names []string
	for t, rank := range a.world {
		if a.missing > 0 && rank >= 0 || a.missing == 0 && a.trainings[t] != nil {
			continue
		}
		names = append(names, strconv.Itoa(t))
	}
	missing := len(names)
	if missing > mostNamed {
		names = append(names[:mostNamed], "...")
	}
	return fmt.Sprintf("of %d trainers (WORLD_SIZE) %d %s: RANK %s",
		len(a.world), missing, what, strings.Join(names, ", "))
}

// known reports whether all trainers have described their training.
func (a *agreement) known() bool { return a.missing == 0 && !slices.Contains(a.trainings, nil) }

// processes returns how many processes the training began with, according to its checkpoint; 0:
// there is none, or it does not say. Trainers that have not loaded it yet do not count.
func (a *agreement) processes() int {
	most := 0
	for _, t := range a.trainings {
		if t != nil && t.Checkpoint != nil {
			most = max(most, t.Checkpoint.Processes)
		}
	}
	return most
}

// planned reports whether each of these trainers has had a plan.
func (a *agreement) planned(trainers []int) bool {
	return !slices.ContainsFunc(trainers, func(t int) bool {
		training := a.trainings[t]
		return training == nil || len(training.Planned) == 0
	})
}

// Assignment returns the assignment that the spec requests, or the given one if it requests none.
// It returns an error for an unknown name.
func (spec *Spec) Assignment(otherwise plan.Assignment) (plan.Assignment, error) {
	switch spec.Assign {
	case "":
		if spec.Listed() { // a trainer gets what it has handed in
			return plan.AssignSampler, nil
		}
		return otherwise, nil
	case "local":
		return plan.AssignLocal, nil
	case "sampler":
		return plan.AssignSampler, nil
	}
	return 0, fmt.Errorf("trainer %d has assign %q; it is local or sampler", spec.Trainer, spec.Assign)
}

// has reports whether trainer opened the data set on rank.
func (a *agreement) has(trainer, rank int) bool {
	return trainer >= 0 && trainer < len(a.world) && a.world[trainer] == int32(rank)
}

// locals returns the trainers of rank.
func (a *agreement) locals(rank int) []int {
	var local []int
	for t, r := range a.world {
		if int(r) == rank {
			local = append(local, t)
		}
	}
	return local
}

// all returns all trainers.
func (a *agreement) all() []int {
	all := make([]int, len(a.world))
	for t := range all {
		all[t] = t
	}
	return all
}
