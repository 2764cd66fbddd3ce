// Package systems holds the published cache systems for deep-learning training. A system is a named
// triple of scorer, sampler and policy, with its options.
//
// Like package scheduler, it only decides: it uses no clock, starts no goroutine, opens no file,
// and draws random numbers only from a seed.
package systems

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/stager"
)

// A System is a named triple of scorer, sampler and policy. NewPolicy is set if its mechanisms fit
// a Policy, which ranks and simulator run alike. NewPool is set if the system has several regions,
// loads samples ahead of draws, substitutes samples, or chooses its draws. If both are set, the
// simulator uses the Pool. Ranks run pools with a Chooser or a Learner.
type System struct {
	Name    string
	About   string // one line, for people
	Source  string // author, venue, section
	Scorer  string // name for NewScorer; "" when scores are not used
	Sampler string // name for draw.NewSampler
	Policy  string // name for NewPolicy; without one, the policy's name in tables
	Options []Option

	// NeedsLabels and NeedsEmbeddings report whether the system needs the samples' labels or
	// embeddings.
	NeedsLabels, NeedsEmbeddings bool

	NewPolicy func(PolicyConfig) stager.Policy
	NewPool   func(PoolConfig) Pool

	// Live is how ranks run the system. NeedsEpochs reports whether they must know how many epochs
	// will be trained; these may have at most MostDraws draws, or any number if that is 0.
	Live        live
	NeedsEpochs bool
	MostDraws   int

	// Packs reports whether some samples are read in packages, see Packages.
	Packs bool

	// Evaluates reports whether some batches are evaluated but not trained on, see Evaluator.
	Evaluates bool

	// Simulated is why ranks cannot run the system, in the words that follow "it"; "" if they can.
	Simulated string
}

// CheckEpochs returns an error if ranks cannot run the system for so many epochs of so many
// samples.
func (s *System) CheckEpochs(epochs, samples int) error {
	switch {
	case !s.NeedsEpochs:
		return nil
	case epochs < 1:
		return fmt.Errorf("systems: %s needs the number of epochs: use "+
			"BatchSampler(…, epochs=E)", s.Name)
	case s.MostDraws > 0 && epochs > s.MostDraws/max(samples, 1):
		return fmt.Errorf("systems: %s counts the draws of all epochs that will be trained, and "+
			"%d epochs of %d samples have more than %d: give BatchSampler fewer epochs", s.Name,
			epochs, samples, s.MostDraws)
	}
	return nil
}

// live is how ranks run a system.
type live uint8

const (
	liveParts   live = iota // with its policy, scorer and sampler
	livePlaced              // with a Chooser, which places samples and serves what was drawn
	liveServed              // with a Chooser, which may serve samples other than those drawn
	liveLearned             // with its policy, its scorer, and a Learner that draws by reports
)

// An Option is a number that tunes a system.
type Option struct {
	Name    string  `json:"name"`
	Default float64 `json:"default"`
	Least   float64 `json:"least"`  // values below it are refused
	Most    float64 `json:"most"`   // values above it are refused
	Whole   bool    `json:"whole"`  // only whole numbers are accepted
	About   string  `json:"about"`  // one line: meaning, unit and range
	Source  string  `json:"source"` // section of the paper, or the measurement behind the default
	// Simulated: ranks always use the default; only the simulator accepts other values
	Simulated bool `json:"-"`
}

// Values are the options that were set, by name; the others have their defaults.
type Values map[string]float64

// String returns the options in the form that --system takes, sorted by name: `beta=0.5,h_share=0.6`;
// "" when there are none.
func (v Values) String() string {
	words := make([]string, 0, len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		words = append(words, name+"="+strconv.FormatFloat(v[name], 'g', -1, 64))
	}
	return strings.Join(words, ",")
}

// Parse parses words, each `OPTION=VALUE`, as options of s. The error says what is wrong; for an
// unknown option it names the nearest known one.
func (s *System) Parse(words []string) (Values, error) {
	values := Values{}
	for _, word := range words {
		name, number, found := strings.Cut(word, "=")
		if !found {
			return nil, fmt.Errorf("%q is not of the form OPTION=VALUE", word)
		}
		if err := s.CheckName(name); err != nil {
			return nil, err
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%s.%s is %q, which is not a number", s.Name, name, number)
		}
		values[name] = value
	}
	return values, s.Check(values)
}

// CheckName returns an error, which names the nearest option, unless s has an option of that name,
// or it is among more.
func (s *System) CheckName(name string, more ...string) error {
	var known []string
	for _, o := range s.Options {
		known = append(known, o.Name)
	}
	known = append(known, more...)
	switch {
	case slices.Contains(known, name):
		return nil
	case len(known) == 0:
		return fmt.Errorf("%s has no options, so none is %q", s.Name, name)
	}
	return fmt.Errorf("%s has no option %q%s; it takes %s", s.Name, name, Meant(name, known),
		strings.Join(known, ", "))
}

// samplers has the samplers that take each option of a system that belongs to its sampler.
var samplers = map[string][]string{
	"beta":           {"selective"},
	"draws":          {"thrifty"},
	"floor":          {"pads", "subset", "thrifty", "weighted"},
	"fraction":       {"selective", "subset"},
	"reads":          {"thrifty"},
	"room":           {"thrifty"},
	"warm_up_epochs": {"selective"},
}

// SamplersOf returns the samplers that take an option; nil if it does not belong to samplers.
func SamplersOf(option string) []string { return samplers[option] }

// Sample sets the options in cfg that belong to its sampler, for the system's own draws: those in
// v, and the fraction, whose default differs between systems.
func (s *System) Sample(v Values, cfg *draw.SamplerConfig) {
	if slices.Contains(samplers["fraction"], cfg.Name) && s.CheckName("fraction") == nil {
		cfg.Fraction = s.Value(v, "fraction")
	}
	v.Sample(cfg)
}

// Sample sets the options in cfg that belong to its sampler.
func (v Values) Sample(cfg *draw.SamplerConfig) {
	if fraction, given := v["fraction"]; given &&
		(cfg.Name == "selective" || cfg.Name == "subset") {
		cfg.Fraction = fraction
	}
	if floor, given := v["floor"]; given && cfg.Name != "selective" {
		cfg.Floor = floor
	}
	if draw.KindOf(cfg.Name) == draw.Thrifty {
		if reads, given := v["reads"]; given {
			cfg.Reads = cmp.Or(reads, draw.AutoReads)
		}
		cfg.Room, cfg.Fraction = cmp.Or(v["room"], cfg.Room), cmp.Or(v["draws"], cfg.Fraction)
	}
	if cfg.Name != "selective" {
		return
	}
	if beta, given := v["beta"]; given {
		cfg.Beta = max(beta, 1e-12) // 0 would mean the default
	}
	if epochs, given := v["warm_up_epochs"]; given {
		if cfg.WarmUp = int(epochs); cfg.WarmUp == 0 {
			cfg.WarmUp = -1
		}
	}
}

// Value returns the value of an option of s: the one in values, or the default. It panics if s has
// no such option, since the names are constants in the callers.
func (s *System) Value(values Values, name string) float64 {
	if v, ok := values[name]; ok {
		return v
	}
	for _, o := range s.Options {
		if o.Name == name {
			return o.Default
		}
	}
	panic(fmt.Sprintf("systems: %s has no option %q.", s.Name, name))
}

// CheckLive returns an error if a value is one that only the simulator accepts.
func (s *System) CheckLive(values Values) error {
	for _, o := range s.Options {
		if v, given := values[o.Name]; given && o.Simulated && v != o.Default {
			return fmt.Errorf("%s.%s must be %v, not %v: only rankpool-lab simulate has others",
				s.Name, o.Name, o.Default, v)
		}
	}
	return nil
}

// Check returns an error if a value is outside its option's range, or is not whole where it must
// be. It ignores names that s does not have.
func (s *System) Check(values Values) error {
	for _, o := range s.Options {
		v, given := values[o.Name]
		switch {
		case !given:
		case !(v >= o.Least && v <= o.Most):
			return fmt.Errorf("%s.%s is %v, it must be in [%v, %v]: %s", s.Name, o.Name, v, o.Least,
				o.Most, o.About)
		case o.Whole && v != math.Trunc(v):
			return fmt.Errorf("%s.%s is %v, it must be a whole number: %s", s.Name, o.Name, v,
				o.About)
		}
	}
	return nil
}

// mustSampler returns a new sampler of a system. Nothing in cfg may be wrong.
func mustSampler(s *System, cfg draw.SamplerConfig) draw.Sampler {
	sampler, err := draw.NewSampler(cfg)
	if err != nil {
		panic("systems: " + s.Name + " cannot draw: " + err.Error() + ".")
	}
	return sampler
}

// PolicyConfig configures a new policy.
type PolicyConfig struct {
	System *System // for its options
	Seed   int64
	Values Values
}

// NewPolicy returns a new policy of that name, without residents. If there is none, the error names
// the nearest known one.
func NewPolicy(name string, cfg PolicyConfig) (stager.Policy, error) {
	if cfg.System = PolicyOwner(name); cfg.System == nil {
		return nil, fmt.Errorf("systems: %w", Unknown("policy", name, PolicyNames()))
	}
	return cfg.System.NewPolicy(cfg), nil
}

// PolicyOwner returns the system that a policy belongs to, nil if NewPolicy does not know it.
func PolicyOwner(policy string) *System {
	for i := range registry {
		if s := &registry[i]; s.Policy == policy && s.NewPolicy != nil {
			return s
		}
	}
	return nil
}

// PolicyNames returns the names that NewPolicy knows, in the order of All.
func PolicyNames() []string {
	var all []string
	for _, s := range registry {
		if s.NewPolicy != nil && !slices.Contains(all, s.Policy) {
			all = append(all, s.Policy)
		}
	}
	return all
}

// registry has one entry per system, in the order in which tables list them.
var registry = []System{
	lruSystem,
	lfuSystem,
	coordlSystem,
	minSystem,
	minPartitionedSystem,
	nopfsSystem,
	quiverSystem,
	shadeSystem,
	shadePQSystem,
	shadePQLFUSystem,
	shadeLRUSystem,
	shadeLFUSystem,
	shadeRandSystem,
	shadeAPPSystem,
	ilfuSystem,
	icacheHSystem,
	icacheSystem,
	impactSystem,
	spiderCacheImpSystem,
	spiderCacheSystem,
	rankpoolSystem,
}

// All returns every system, in the order in which tables list them. The slice is the caller's.
func All() []System { return slices.Clone(registry) }

// Find returns the system of that name. If there is none, the error names the nearest known one.
func Find(name string) (*System, error) {
	for i := range registry {
		if registry[i].Name == name {
			return &registry[i], nil
		}
	}
	names := make([]string, len(registry))
	for i, s := range registry {
		names[i] = s.Name
	}
	return nil, fmt.Errorf("systems: %w", Unknown("system", name, names))
}

// Unknown returns the error for a name of something that is not among the known ones; it names the
// nearest.
func Unknown(what, name string, known []string) error {
	return fmt.Errorf("unknown %s %q%s; the known ones are %s", what, name, Meant(name, known),
		strings.Join(known, ", "))
}

// Meant asks whether a name in known was meant, in brackets after a space. It returns "" if name is
// more than two inserted, deleted or substituted letters away from all of them.
func Meant(name string, known []string) string {
	best, least := "", min(3, len(name))
	for _, k := range known {
		if d := levenshtein.Distance(strings.ToLower(name), k, nil); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", best)
}
