package simulate

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"rankpool/benchmarks/simulator"
	"rankpool/cmd/internal/exit"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// A study is the validated request to simulate: every system with every capacity.
type study struct {
	base       simulator.Config // of all simulations; System, Values, Capacity and Ranks differ
	trace      string           // what titles call it
	machine    string
	systems    []*systems.System
	values     map[string]systems.Values // by system
	capacities []float64
}

// study checks the flags, then the files.
func (o *Options) study() (*study, error) {
	chosen, err := o.chosenSystems()
	if err != nil {
		return nil, err
	}
	s := &study{
		systems: chosen, trace: filepath.Base(o.files.Losses), machine: filepath.Base(o.cluster),
	}
	if err := o.checkNumbers(); err != nil {
		return nil, err
	}
	if s.capacities, err = parseCapacities(o.capacity); err != nil {
		return nil, err
	}
	if err := o.checkNames(); err != nil {
		return nil, err
	}
	if s.values, err = o.parseValues(chosen); err != nil {
		return nil, err
	}
	if o.files.Losses == "" {
		return nil, exit.Usagef("which losses? name them with --losses L.npy")
	}
	cluster, err := simulator.LoadCluster(o.cluster)
	if err != nil {
		return nil, err
	}
	trace, err := simulator.LoadTrace(o.files)
	if err != nil {
		return nil, err
	}
	epochs, skip, err := o.countedEpochs(len(trace.Losses))
	if err != nil {
		return nil, err
	}
	losses, err := o.lossesOfJobs(trace)
	if err != nil {
		return nil, err
	}
	o.noteLeftOut()
	s.base = simulator.Config{
		Trace: trace, Sampler: o.sampler, Scorer: o.scorer, Policy: o.policy, Ranks: o.ranks,
		TrainersPerRank: o.trainers, BatchSize: o.batchSize,
		Epochs: epochs, SkipEpochs: skip, Jobs: o.jobs, Seed: o.seed, Cluster: cluster,
		JobSteps: o.jobSteps, JobLosses: losses, IDsDigest: o.idsDigest,
		DropLast: o.dropLast, Window: o.window(),
	}
	return s, nil
}

// configs returns the simulations of every system with every capacity, in that order. The offline
// bounds keep their own policy.
func (s *study) configs(ranks int, capacities []float64) []simulator.Config {
	var all []simulator.Config
	for _, system := range s.systems {
		for _, capacity := range capacities {
			cfg := s.base
			cfg.System, cfg.Capacity, cfg.Ranks = system, capacity, ranks
			if system.Offline() {
				cfg.Policy = ""
			}
			cfg.Values = s.valuesOf(system, cfg.Policy)
			all = append(all, cfg)
		}
	}
	return all
}

// valuesOf returns the options of a system whose policy is replaced, if policy is not "": those of
// the policy's owner, and the system's own that belong to its sampler.
func (s *study) valuesOf(system *systems.System, policy string) systems.Values {
	parts := partsOf(system, policy, s.base.Sampler)
	values := systems.Values{}
	for option, value := range s.values[parts.policy] {
		if systems.SamplersOf(option) == nil {
			values[option] = value
		}
	}
	for option, value := range s.values[parts.sampler] {
		if systems.SamplersOf(option) != nil {
			values[option] = value
		}
	}
	return values
}

// parts are the systems whose options a simulated system takes for its policy and for its sampler,
// and the sampler's name.
type parts struct{ policy, sampler, samplerName string }

// partsOf returns the parts of a system with --policy and --sampler, "" for its own.
func partsOf(system *systems.System, policy, sampler string) parts {
	p := parts{system.Name, system.Name, cmp.Or(sampler, system.Sampler)}
	if sampler == draw.Thrifty { // all systems get the same draws
		p.sampler = "rankpool"
	}
	owner := systems.PolicyOwner(policy)
	if owner == nil || system.Offline() || policy == system.Policy {
		return p
	}
	p.policy = owner.Name
	// a policy whose system has several parts draws as well
	if owner.NewPool != nil && sampler == "" {
		p.sampler, p.samplerName = p.policy, owner.Sampler
	}
	return p
}

// takes reports whether an option of the system name has an effect.
func (p parts) takes(name, option string) bool {
	if of := systems.SamplersOf(option); of != nil {
		return name == p.sampler && slices.Contains(of, p.samplerName)
	}
	return name == p.policy
}

// noteLeftOut names the systems that were left out of "all" because they need something that is
// missing.
func (o *Options) noteLeftOut() {
	for _, s := range systems.All() {
		if missing := o.missing(&s); missing != "" && slices.Contains(o.systems, "all") {
			note("%s is left out: it needs %s", s.Name, missing)
		}
	}
}

// chosenSystems finds the systems that --systems names. From "all" it leaves out those that need
// something that is missing.
func (o *Options) chosenSystems() ([]*systems.System, error) {
	var chosen []*systems.System
	for _, name := range o.systems {
		if name == "all" {
			for _, s := range systems.All() {
				if o.missing(&s) == "" {
					chosen = append(chosen, &s)
				}
			}
			continue
		}
		s, err := systems.Find(name)
		if err != nil {
			return nil, exit.Usagef("--systems: %w", err)
		}
		if missing := o.missing(s); missing != "" {
			return nil, exit.Usagef("--systems: %s needs %s", name, missing)
		}
		chosen = append(chosen, s)
	}
	for i, s := range chosen {
		if slices.ContainsFunc(chosen[:i], func(c *systems.System) bool { return c.Name == s.Name }) {
			return nil, exit.Usagef("--systems lists %s twice", s.Name)
		}
	}
	if len(chosen) == 0 {
		var known []string
		for _, s := range systems.All() {
			known = append(known, s.Name)
		}
		return nil, exit.Usagef("--systems: which ones? the known ones are all, %s",
			strings.Join(known, ", "))
	}
	return chosen, nil
}

// missing names the flags without which a system cannot be simulated, or "" if none is missing.
func (o *Options) missing(s *systems.System) string {
	given := map[string]string{"--embeddings": o.files.Embeddings, "--labels": o.files.Labels}
	absent := slices.DeleteFunc(needs(s),
		func(flag string) bool { return o.list || given[flag] != "" })
	return strings.Join(absent, " and ")
}

// needs returns the flags that a system cannot do without.
func needs(s *systems.System) []string {
	flags := []string{}
	if s.NeedsEmbeddings {
		flags = append(flags, "--embeddings")
	}
	if s.NeedsLabels {
		flags = append(flags, "--labels")
	}
	return flags
}
