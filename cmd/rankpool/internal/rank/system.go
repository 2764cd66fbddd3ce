package rank

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
	"rankpool/staging/dataset"
)

// A System is what --system asks for. What it does not say is the system's own.
type System struct {
	Name     string
	Policy   string // decides what stays in memory
	Scorer   string // turns losses into importance; "": the sampler's choice
	Sampler  string // that training must draw with; "": any
	Assign   string // one of Assignments
	Packages string // DIR:SIZE, for files of packages; "": none
	Options  systems.Values
}

// Assignments say who consumes a draw: the trainers of the node that has it, or those that the
// sampler assigns it to.
var Assignments = []string{"local", "sampler"}

// parseSystem parses NAME[,OPTION=VALUE…].
func parseSystem(text string) (s System, err error) {
	words := strings.Split(text, ",")
	s.Name = words[0]
	system, err := systems.Find(s.Name)
	if err != nil {
		return s, err
	}
	if system.Simulated != "" {
		hint := ""
		if system.NewPolicy != nil {
			hint = "; its policy alone is --system rankpool,policy=" + system.Policy
		}
		return s, fmt.Errorf("%s is simulated only (rankpool-lab simulate): it %s%s", s.Name,
			system.Simulated, hint)
	}
	parts := s.parts(system)
	var own []string // options of the system itself
	for _, word := range words[1:] {
		option, value, _ := strings.Cut(word, "=")
		at := slices.IndexFunc(parts, func(p part) bool { return p.name == option })
		switch {
		case value == "":
			return s, fmt.Errorf("%q is not of the form OPTION=VALUE", word)
		case at < 0:
			own = append(own, word)
		case parts[at].known != nil && !slices.Contains(parts[at].known, value):
			return s, fmt.Errorf("%s: %q is not one of %s", option, value,
				strings.Join(parts[at].known, ", "))
		default:
			*parts[at].value = value
		}
	}
	if err := s.parse(system, own); err != nil {
		return s, err
	}
	s.complete(system)
	return s, nil
}

// A part is an option that replaces a part of a system.
type part struct {
	name  string
	value *string
	known []string // its possible values; nil: any
}

// parts returns the parts of a system that can be replaced. A system that draws itself has few.
func (s *System) parts(system *systems.System) (parts []part) {
	if !system.Draws() {
		parts = []part{
			{"policy", &s.Policy, systems.PolicyNames()},
			{"scorer", &s.Scorer, protocol.ScorerNames()},
			{"sampler", &s.Sampler, draw.SamplerNames()},
		}
	}
	parts = append(parts, part{"assign", &s.Assign, Assignments})
	if system.Packs {
		parts = append(parts, part{"packages", &s.Packages, nil})
	}
	return parts
}

// whole reports whether no part of the system was replaced by another.
func (s *System) whole() bool { return s.Policy == "" && s.Scorer == "" && s.Sampler == "" }

// parse parses the system's own options. It must be whole: half of the options would mean nothing
// to another policy or sampler.
func (s *System) parse(system *systems.System, own []string) (err error) {
	var parts []string
	for _, p := range s.parts(system) {
		parts = append(parts, p.name)
	}
	for _, word := range own {
		name, _, _ := strings.Cut(word, "=")
		if err := system.CheckName(name, parts...); err != nil {
			return err
		}
	}
	if len(own) > 0 && !s.whole() {
		return fmt.Errorf("%s has the option %q only as it is: leave policy, scorer and sampler out",
			s.Name, own[0])
	}
	if s.Options, err = system.Parse(own); err != nil {
		return err
	}
	return system.CheckLive(s.Options)
}

// complete fills in what was not given. A published system determines all of it; rankpool works
// with every sampler, and leaves the choice of the scorer to the sampler. If a system's own sampler
// decides what is kept, memory holds what it chose (policy clairvoyant).
func (s *System) complete(system *systems.System) {
	switch {
	case system.Draws():
		s.Policy, s.Scorer, s.Sampler = system.Policy, system.Scorer, system.LiveSampler()
		s.Assign = cmp.Or(s.Assign, Assignments[1])
		if system.Chooses() {
			s.Policy = "clairvoyant"
		}
	case system.Name != "rankpool":
		if s.whole() {
			s.Sampler = system.Sampler
			// the published systems' samplers are DistributedSamplers
			s.Assign = cmp.Or(s.Assign, Assignments[1])
		}
		s.Scorer = cmp.Or(s.Scorer, system.Scorer)
	}
	s.Assign = cmp.Or(s.Assign, Assignments[0])
	s.Policy = cmp.Or(s.Policy, system.Policy)
}

// String returns all parts of the system, as --system takes them.
func (s System) String() string {
	text := s.Name
	for _, part := range [][2]string{
		{"policy", s.Policy}, {"scorer", s.Scorer}, {"sampler", s.Sampler}, {"assign", s.Assign},
	} {
		if part[1] != "" {
			text += "," + part[0] + "=" + part[1]
		}
	}
	if len(s.Options) > 0 {
		text += "," + s.Options.String()
	}
	return text
}

// Substitutes returns a warning if training gets samples other than those drawn, else "".
func (s System) Substitutes() string {
	system, err := systems.Find(s.Name)
	if err != nil || !system.Substitutes() {
		return ""
	}
	return fmt.Sprintf("--system %s serves other samples than those drawn, as published; they "+
		"are counted as substituted", s.Name)
}

// CheckData checks whether the system works with a data set.
func (s System) CheckData(name string, m *dataset.Manifest) error {
	system, err := systems.Find(s.Name)
	if err == nil && system.Draws() && m.Pieces() != nil {
		return exit.Usagef("--system %s chooses among samples of one piece, and the samples of %s are "+
			"made of pieces that they share: use --system rankpool", system.Name, name)
	}
	return nil
}

// checkSystem checks whether the system works with the other options.
func (o *CacheOptions) checkSystem() error {
	system, err := systems.Find(o.System.Name)
	if err == nil && system.Draws() && o.Memory == memory.Auto {
		return exit.Usagef("--memory %s: what %s draws depends on the size of the memory: say "+
			"one, best a share of the data", memory.Auto, system.Name)
	}
	return o.checkPackages()
}
