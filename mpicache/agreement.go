package mpicache

import (
	"encoding/json"
	"fmt"
	"time"

	"rankpool/mpicache/record"
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

// agreement is what the trainers of all ranks have opened so far.
type agreement struct {
	spec     *Spec
	world    []int32 // rank of each trainer, -1: not opened yet
	missing  int
	conflict error
}

// differs returns a sentence that names the field in which b departs from a, or "".
func differs(a, b Spec) string {
	say := func(field string, x, y any) string {
		return fmt.Sprintf("the trainers disagree on data set %s: trainer %d has %s %v, trainer %d has %v", a.Data, a.Trainer, field, x, b.Trainer, y)
	}
	switch {
	case a.Sampler != b.Sampler:
		return say("sampler", a.Sampler, b.Sampler)
	case a.Seed != b.Seed:
		return say("seed", a.Seed, b.Seed)
	case a.BatchSize != b.BatchSize:
		return say("batch_size", a.BatchSize, b.BatchSize)
	case a.DropLast != b.DropLast:
		return say("drop_last", a.DropLast, b.DropLast)
	case a.SamplerDropLast != b.SamplerDropLast:
		return say("sampler_drop_last", a.SamplerDropLast, b.SamplerDropLast)
	case a.Assign != b.Assign:
		return say("assign", a.Assign, b.Assign)
	case a.World != b.World:
		return say("world_size", a.World, b.World)
	}
	return ""
}

// open takes the spec of a trainer on rank. It reports whether it is news.
func (a *agreement) open(spec Spec, rank int) (news bool, err error) {
	if a.conflict != nil {
		return false, a.conflict
	}
	if a.spec == nil {
		a.spec = &spec
		a.world = make([]int32, spec.World)
		a.missing = spec.World
		for t := range a.world {
			a.world[t] = -1
		}
	}
	if text := differs(*a.spec, spec); text != "" {
		a.conflict = fmt.Errorf("%s", text)
		return false, a.conflict
	}
	switch a.world[spec.Trainer] {
	case int32(rank):
		return false, nil
	case -1:
		a.world[spec.Trainer] = int32(rank)
		a.missing--
		return true, nil
	}
	a.conflict = fmt.Errorf("trainer %d opened data set %s on rank %d and on rank %d; give every training process a RANK of its own", spec.Trainer, spec.Data, a.world[spec.Trainer], rank)
	return false, a.conflict
}

// assignment is what the spec asks for, otherwise when it asks for nothing.
func (s *Spec) assignment(otherwise scheduler.Assignment) (scheduler.Assignment, error) {
	switch s.Assign {
	case "":
		return otherwise, nil
	case "local":
		return scheduler.AssignLocal, nil
	case "sampler":
		return scheduler.AssignSampler, nil
	}
	return 0, fmt.Errorf("trainer %d has assign %q; it is local or sampler", s.Trainer, s.Assign)
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
func (s *stream) onOpen(spec Spec) (err error) {
	s.locked(func() {
		var news bool
		news, err = s.agreed.open(spec, s.node.cfg.Transport.Rank())
		if !news && err == nil {
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
		if err == nil {
			err = s.agreed.conflict
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
		if _, err := s.agreed.open(spec, from); err != nil && s.agreed.conflict == nil {
			s.agreed.conflict = err
		}
		s.opened()
	})
}

// opened makes the stager when every trainer is there and nothing is being warmed, or tells those who wait what is wrong.
func (s *stream) opened() {
	if s.agreed.conflict == nil && s.agreed.missing == 0 && s.stager == nil && s.cooled(time.Now()) {
		s.agreed.conflict = s.makeStager()
	}
	if s.agreed.conflict != nil {
		s.node.cfg.Log.Info("a data set cannot be served", "data", s.data.Name, "error", s.agreed.conflict)
		s.failPlans(s.agreed.conflict)
		return
	}
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
		Size: func(id scheduler.SampleID) int64 { return Footprint(s.data.Size(id)) },
	}
	if s.data.Tier != nil {
		setup.TierBytes, setup.TierBlockBytes = s.data.TierBytes[t.Rank()], s.data.TierBlockBytes
	}
	plans, stager, err := setup.New()
	if err != nil {
		return err
	}
	if setup.Policy == "clairvoyant" {
		s.planner.placement = scheduler.PlacementFor(plans.Sampler, s.data.Samples, s.data.keptBytes(), setup.Size)
	}
	s.planner.cfg, s.stager = plans, stager
	s.tape = s.node.cfg.Recorder.Tape(s.index, setup)
	s.takeWarm()
	return nil
}
