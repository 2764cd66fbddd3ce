package simulate

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"rankpool/benchmarks/simulator"
	"rankpool/cmd/internal/exit"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

func (o *Options) checkNumbers() error {
	switch {
	case o.jobs < 1:
		return exit.Usagef("--jobs must be at least 1, not %d", o.jobs)
	case len(o.jobSteps) > 0 && len(o.jobSteps) != o.jobs:
		return exit.Usagef("--job-steps: %d for %d jobs (--jobs)", len(o.jobSteps), o.jobs)
	case len(o.jobSteps) > 0 && slices.Min(o.jobSteps) <= 0:
		return exit.Usagef("--job-steps must be positive times, not %v", slices.Min(o.jobSteps))
	case len(o.jobLosses) > 0 && len(o.jobLosses) != o.jobs:
		return exit.Usagef("--job-losses: %d files for %d jobs (--jobs)", len(o.jobLosses), o.jobs)
	case o.epochs < 0:
		return exit.Usagef("--epochs must be at least 1, not %d", o.epochs)
	case o.skipEpochs < 0:
		return exit.Usagef("--skip-epochs must be at least 0, not %d", o.skipEpochs)
	}
	if len(o.windows) > 2 || len(o.windows) > 0 && slices.Min(o.windows) < 1 {
		return exit.Usagef("--windows: one or two numbers, at least 1: rows of a sample and of a piece")
	}
	if err := CheckTrainers(o.ranks, o.batchSize); err != nil {
		return err
	}
	if most := min(math.MaxUint16, math.MaxInt32/o.batchSize) / o.ranks; o.trainers < 1 ||
		o.trainers > most {
		return exit.Usagef("--trainers-per-rank must be from 1 to %d with %d ranks and a batch size of "+
			"%d, not %d", most, o.ranks, o.batchSize, o.trainers)
	}
	return nil
}

// window returns what --windows says.
func (o *Options) window() (w simulator.Window) {
	if len(o.windows) > 0 {
		w = simulator.Window{Rows: o.windows[0], PerPiece: 1}
	}
	if len(o.windows) > 1 {
		w.PerPiece = o.windows[1]
	}
	return w
}

// CheckTrainers checks the limits of a scheduler: ranks are 16 bits wide, global batches 31.
func CheckTrainers(ranks, batchSize int) error {
	switch {
	case ranks < 1 || ranks > math.MaxUint16:
		return exit.Usagef("--ranks must be from 1 to %d, not %d", math.MaxUint16, ranks)
	case batchSize < 1 || batchSize > math.MaxInt32/ranks:
		return exit.Usagef("--batch-size must be from 1 to %d, not %d", math.MaxInt32/ranks, batchSize)
	}
	return nil
}

func (o *Options) checkNames() error {
	for _, part := range []struct {
		flag, name string
		known      []string
	}{
		{"--sampler", o.sampler, draw.SamplerNames()},
		{"--scorer", o.scorer, protocol.ScorerNames()},
		{"--policy", o.policy, systems.PolicyNames()},
	} {
		if part.name == "" {
			continue
		}
		if err := CheckName(part.flag, part.name, part.known); err != nil {
			return err
		}
	}
	return nil
}

// CheckName returns an error that names the nearest known name when name is not known.
func CheckName(flag, name string, known []string) error {
	if slices.Contains(known, name) {
		return nil
	}
	return exit.Usagef("%s: %q is unknown%s; the known ones are %s", flag, name,
		systems.Meant(name, known), strings.Join(known, ", "))
}

// KnownSamplers lists the samplers' names.
func KnownSamplers() string { return strings.Join(draw.SamplerNames(), ", ") }
func knownScorers() string  { return strings.Join(protocol.ScorerNames(), ", ") }
func knownPolicies() string { return strings.Join(systems.PolicyNames(), ", ") }

func parseCapacities(words []string) ([]float64, error) {
	var capacities []float64
	for _, word := range words {
		number, percent := strings.CutSuffix(strings.TrimSpace(word), "%")
		c, err := strconv.ParseFloat(number, 64)
		if percent {
			c /= 100
		}
		if err != nil || !(c > 0 && c <= 1) {
			return nil, exit.Usagef(
				"--capacity must be a share of the data above 0 and up to 1, not %q", word)
		}
		if slices.Contains(capacities, c) {
			return nil, exit.Usagef("--capacity lists %v twice", c)
		}
		capacities = append(capacities, c)
	}
	if len(capacities) == 0 {
		return nil, exit.Usagef("--capacity: which ones? name shares of the data above 0 and up to 1")
	}
	return capacities, nil
}

// parseValues returns the options that --set gives to the systems.
func (o *Options) parseValues(chosen []*systems.System) (map[string]systems.Values, error) {
	values := map[string]systems.Values{}
	for _, text := range o.set {
		place, number, found := strings.Cut(text, "=")
		name, option, dotted := strings.Cut(place, ".")
		if !found || !dotted {
			return nil, exit.Usagef("--set: %q is not of the form SYSTEM.OPTION=VALUE", text)
		}
		s, err := systems.Find(name)
		if err != nil {
			return nil, exit.Usagef("--set: %w", err)
		}
		if s != systems.PolicyOwner(o.policy) &&
			!slices.ContainsFunc(chosen, func(c *systems.System) bool { return c.Name == name }) {
			return nil, exit.Usagef("--set: %s is not among the systems that are simulated", name)
		}
		parsed, err := s.Parse([]string{option + "=" + number})
		if err != nil {
			return nil, exit.Usagef("--set: %w", err)
		}
		if !slices.ContainsFunc(chosen, func(c *systems.System) bool {
			return partsOf(c, o.policy, o.sampler).takes(name, option)
		}) {
			return nil, exit.Usagef("--set: %s.%s has no effect, since --policy or --sampler replaces "+
				"what it belongs to: leave one of them out", name, option)
		}
		if values[name] == nil {
			values[name] = systems.Values{}
		}
		maps.Copy(values[name], parsed)
	}
	return values, nil
}

// countedEpochs returns how many epochs are trained, and how many of these are not counted.
func (o *Options) countedEpochs(recorded int) (epochs, skip int, err error) {
	epochs, skip = o.epochs, o.skipEpochs
	if epochs == 0 {
		epochs = recorded
	}
	switch {
	case epochs > recorded:
		return 0, 0, exit.Usagef("--epochs: %d, but the losses are of %d epochs", epochs, recorded)
	case skip >= epochs && o.flags.Changed("skip-epochs"):
		return 0, 0, exit.Usagef(
			"--skip-epochs: of %d epochs, %d cannot be skipped: at least one must be counted",
			epochs, skip)
	case skip >= epochs:
		skip = epochs - 1
		note("skipping %d epochs instead of %d (--skip-epochs), because there are only %d", skip,
			defaultSkip, epochs)
	}
	return epochs, skip, nil
}

// lossesOfJobs reads the losses of each job, nil when all have those of trace.
func (o *Options) lossesOfJobs(trace *simulator.Trace) ([][][]float32, error) {
	var all [][][]float32
	for _, file := range o.jobLosses {
		losses, err := simulator.LoadLosses(file)
		if err != nil {
			return nil, err
		}
		if len(losses) != len(trace.Losses) || len(losses[0]) != trace.Samples() {
			return nil, fmt.Errorf("%s has the losses of %d epochs and %d samples, --losses those of %d "+
				"and %d", file, len(losses), len(losses[0]), len(trace.Losses), trace.Samples())
		}
		all = append(all, losses)
	}
	return all, nil
}
