package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"rankpool/mpicache/record"
	"rankpool/mpicache/slab"
	"rankpool/scheduler"
)

// Spec is what a trainer asks for when it opens a data set (OPEN). All trainers must ask for the same.
type Spec struct {
	Data            string `json:"data"`
	Identity        string `json:"identity"` // of the data set, as HELLO said it
	Sampler         string `json:"sampler"`
	Seed            int64  `json:"seed"`
	BatchSize       int    `json:"batch_size"`
	DropLast        bool   `json:"drop_last"`
	SamplerDropLast bool   `json:"sampler_drop_last"`
	Assign          string `json:"assign"` // "local", "sampler", or "": as the rank was started
	Trainer         int    `json:"trainer"`
	World           int    `json:"world"`
	Beside          bool   `json:"beside"` // it is not trained on: see beside

	Training *Training `json:"training"` // nil: a worker of a DataLoader asks
}

// openReply is the reply to OPEN.
type openReply struct {
	Stream  int64  `json:"stream"`
	Batches int    `json:"batches"`
	Scorer  string `json:"scorer"`
}

// maxWorld is the number of trainers that a plan can name (uint16).
const maxWorld = 1<<16 - 1

// sampler describes the sampler that the spec asks for.
func (spec *Spec) sampler(samples int) scheduler.SamplerConfig {
	return scheduler.SamplerConfig{
		Name: spec.Sampler, Samples: samples, Seed: spec.Seed, BatchSize: spec.BatchSize, World: spec.World,
		DropLast: spec.DropLast, SamplerDropLast: spec.SamplerDropLast,
	}
}

// batches is the number of global batches in an epoch, at the most: some samplers draw fewer.
func (spec *Spec) batches(samples int) int {
	b := spec.BatchSize * spec.World
	return (samples + b - 1) / b
}

// agreement is what the trainers of all ranks have opened so far. Who comes with something else before all are there
// ends the beginning for all: nobody knows who is right. After that, or in place of a trainer that is there, it is a
// newcomer, and is refused alone.
type agreement struct {
	spec    *Spec
	world   []int32 // rank of each trainer, -1: not opened yet
	missing int
	// trainings are what the trainers say of themselves, nil for one that has not, as where only its workers have come.
	trainings []*Training
	conflict  error
	before    *Spec   // of a training that this rank served before it was started again, and that lives
	ranks     []int32 // of its trainers then; nil: not all had come
}

// difference returns the field in which b departs from a, with both values; "" for none.
func difference(a, b Spec) (field string, x, y any) {
	switch {
	case a.Sampler != b.Sampler:
		return "sampler", a.Sampler, b.Sampler
	case a.Seed != b.Seed:
		return "seed", a.Seed, b.Seed
	case a.BatchSize != b.BatchSize:
		return "batch_size", a.BatchSize, b.BatchSize
	case a.DropLast != b.DropLast:
		return "drop_last", a.DropLast, b.DropLast
	case a.SamplerDropLast != b.SamplerDropLast:
		return "sampler_drop_last", a.SamplerDropLast, b.SamplerDropLast
	case a.Assign != b.Assign:
		return "assign", a.Assign, b.Assign
	case a.World != b.World:
		return "world_size", a.World, b.World
	}
	return "", nil, nil
}

// newcomer returns an error when a training has begun, or a trainer has taken its place in it, with another spec.
func (a *agreement) newcomer(spec Spec, rank int) error {
	begun := a.before
	if a.spec != nil && (a.missing == 0 || a.has(spec.Trainer, rank)) {
		begun = a.spec
	}
	if begun == nil {
		return nil
	}
	if field, x, y := difference(*begun, spec); field != "" {
		return refuse("data set %s is being trained on with %s %#v, and trainer %d asks for %#v; give it a cache of its own, by a run of its own",
			spec.Data, field, x, spec.Trainer, y)
	}
	return nil
}

// stranger returns an error when a training lives that this rank served before it was started again, and the trainer was
// another rank's. Of that rank nothing is believed here: ranks that are left out may have given others their numbers.
func (a *agreement) stranger(spec Spec, rank int) error {
	if spec.Trainer >= len(a.ranks) || a.ranks[spec.Trainer] == int32(rank) {
		return nil
	}
	return refuse("trainer %d of the training on data set %s is on rank %d, and this is rank %d; give every training process a RANK of its own",
		spec.Trainer, spec.Data, a.ranks[spec.Trainer], rank)
}

// open takes the spec of a trainer on rank. It reports whether it is news. An error is a conflict of all, or the newcomer's
// alone.
func (a *agreement) open(spec Spec, rank int) (news bool, err error) {
	if a.conflict != nil {
		return false, refuse("%s", a.conflict)
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
	if field, x, y := difference(*a.spec, spec); field != "" {
		a.conflict = fmt.Errorf("the trainers disagree on data set %s: trainer %d has %s %v, trainer %d has %v", spec.Data, a.spec.Trainer, field, x, spec.Trainer, y)
		return false, refuse("%s", a.conflict)
	}
	switch at := a.world[spec.Trainer]; {
	case at == int32(rank):
		return a.say(spec), nil
	case at == -1:
		a.world[spec.Trainer] = int32(rank)
		a.missing--
		a.say(spec)
		return true, nil
	default:
		err := fmt.Errorf("trainer %d opened data set %s on rank %d and on rank %d; give every training process a RANK of its own", spec.Trainer, spec.Data, at, rank)
		if a.missing > 0 {
			a.conflict = err
		}
		return false, refuse("%s", err)
	}
}

// say notes what a trainer says of its training, and reports whether that is news.
func (a *agreement) say(spec Spec) bool {
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

// whoIsMissing names trainers that have not opened the data set or, where all have, those of which only a loader's workers have come.
func (a *agreement) whoIsMissing() string {
	const most = 8
	missing, what := 0, "have not come"
	if a.missing == 0 {
		what = "have not come themselves, only their DataLoader's workers have"
	}
	var names []string
	for t, rank := range a.world {
		if a.missing > 0 && rank >= 0 || a.missing == 0 && a.trainings[t] != nil {
			continue
		}
		if missing++; missing <= most {
			names = append(names, strconv.Itoa(t))
		}
	}
	if missing > most {
		names = append(names, "...")
	}
	return fmt.Sprintf("of %d trainers (WORLD_SIZE) %d %s: RANK %s", len(a.world), missing, what, strings.Join(names, ", "))
}

// told reports whether all trainers have said what their training is.
func (a *agreement) told() bool { return a.missing == 0 && !slices.Contains(a.trainings, nil) }

// assignment is what the spec asks for, otherwise when it asks for nothing.
func (spec *Spec) assignment(otherwise scheduler.Assignment) (scheduler.Assignment, error) {
	switch spec.Assign {
	case "":
		return otherwise, nil
	case "local":
		return scheduler.AssignLocal, nil
	case "sampler":
		return scheduler.AssignSampler, nil
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

// onOpen takes the spec of a trainer here and passes it on.
func (s *stream) onOpen(c *conn, spec Spec) (err error) {
	s.locked(func() {
		s.forgetBefore()
		if err = s.agreed.newcomer(spec, s.node.cfg.Transport.Rank()); err == nil {
			err = s.checkSeat(c)
		}
		if err == nil {
			err = s.agreed.stranger(spec, s.node.cfg.Transport.Rank())
		}
		if err != nil {
			return
		}
		conflict := s.agreed.conflict
		var news bool
		news, err = s.agreed.open(spec, s.node.cfg.Transport.Rank())
		if !news && errors.Is(s.agreed.conflict, conflict) {
			return
		}
		text, jsonErr := json.Marshal(spec)
		if jsonErr != nil {
			panic("mpicache: a spec is not JSON: " + jsonErr.Error())
		}
		for r := range s.node.cfg.Transport.Size() {
			if r != s.node.cfg.Transport.Rank() {
				s.node.cfg.Transport.Post(r, append(s.node.message(messageOpened, s.index), text...))
			}
		}
		s.opened()
		if err == nil && s.agreed.conflict != nil {
			err = refuse("%s", s.agreed.conflict)
		}
	})
	return err
}

func (s *stream) onOpened(from int, text []byte) {
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		s.node.cfg.Log.Error("a spec that makes no sense", "from", from, "error", err)
		return
	}
	s.locked(func() {
		if s.agreed.before != nil && !s.livesHere() { // the rank that took it knows of the training before as well
			s.agreed.before = nil
		}
		conflict := s.agreed.conflict
		news, err := s.agreed.open(spec, from)
		if err != nil {
			s.node.cfg.Log.Info("a trainer was refused", "data", s.data.Name, "from", from, "error", err)
		}
		if news || !errors.Is(s.agreed.conflict, conflict) {
			s.opened()
		}
	})
}

// opened takes up that trainers said something new. It makes the stager when every trainer is there and nothing is being
// warmed, or tells those who wait what is wrong.
func (s *stream) opened() {
	s.planner.refused = nil // they may have loaded another checkpoint, or put back what was lost
	if s.agreed.conflict == nil && s.agreed.missing == 0 && s.stager == nil && s.cooled(time.Now()) {
		s.agreed.conflict = s.makeStager()
	}
	if s.agreed.conflict != nil {
		s.node.cfg.Log.Info("a data set cannot be served", "data", s.data.Name, "error", s.agreed.conflict)
		s.failPlans(s.agreed.conflict)
		return
	}
	s.grant()
	s.plan()
}

func (s *stream) makeStager() error {
	spec, t := s.agreed.spec, s.node.cfg.Transport
	assignment, err := spec.assignment(s.node.cfg.Assignment)
	if err != nil {
		return err
	}
	setup := &record.Setup{
		Data: s.data.Name, Rank: t.Rank(), Ranks: t.Size(), World: s.agreed.world,
		Sampler:    spec.sampler(s.data.Samples),
		Assignment: assignment, Policy: s.node.cfg.Policy,
		CapacityBytes: s.data.PartitionBytes[t.Rank()], WindowBytes: s.data.WindowBytes,
		Size: func(id scheduler.SampleID) int64 { return slab.Footprint(s.data.Size(id)) },
	}
	setup.Values = s.node.cfg.Options
	setup.Values.Sample(&setup.Sampler)
	if s.data.Tier != nil {
		setup.TierBytes, setup.TierBlockBytes = s.data.TierBytes[t.Rank()], s.data.TierBlockBytes
	}
	plans, stager, err := setup.New()
	if err != nil {
		return err
	}
	s.planner.cfg, s.stager = plans, stager
	s.node.seatsChanged.Store(true)
	s.planner.placement = s.newPlacement()
	s.tape = s.node.cfg.Recorder.Tape(s.index, setup)
	s.takeWarm()
	return nil
}
