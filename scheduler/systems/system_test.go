package systems

import (
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
)

// TestRegistry checks that every system has a unique name, is complete, and names its source.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range All() {
		if seen[s.Name] {
			t.Errorf("two systems are called %s", s.Name)
		}
		seen[s.Name] = true
		if found, err := Find(s.Name); err != nil || found.Name != s.Name {
			t.Errorf("%s is not found by its name: %v", s.Name, err)
		}
		if s.Name != strings.ToLower(s.Name) || s.About == "" || s.Source == "" || s.Policy == "" ||
			strings.Contains(s.About, "\n") {
			t.Errorf("%s lacks a name in small letters, a line about it, a source or a policy",
				s.Name)
		}
		if _, err := draw.NewSampler(draw.SamplerConfig{
			Name: s.Sampler, Samples: 10,
			BatchSize: 2, World: 1,
		}); err != nil {
			t.Errorf("%s: %v", s.Name, err)
		}
		if s.Scorer != "" {
			if _, err := protocol.NewScorer(s.Scorer); err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
}

// TestOptions checks that every option is documented, with the source of its default.
func TestOptions(t *testing.T) {
	for _, s := range All() {
		seen := map[string]bool{}
		for _, o := range s.Options {
			if o.Name == "" || seen[o.Name] || o.About == "" || o.Source == "" {
				t.Errorf("%s: option %q has no name of its own, no line about it or no source",
					s.Name, o.Name)
			}
			seen[o.Name] = true
			if got := s.Value(nil, o.Name); got != o.Default {
				t.Errorf("%s: %s is %v by default, want %v", s.Name, o.Name, got, o.Default)
			}
			if got := s.Value(Values{o.Name: -7}, o.Name); got != -7 {
				t.Errorf("%s: %s is %v where it was set to -7", s.Name, o.Name, got)
			}
		}
	}
}

// TestPolicyNames checks that every policy that stands alone can be made by its name.
func TestPolicyNames(t *testing.T) {
	for _, name := range PolicyNames() {
		policy, err := NewPolicy(name, PolicyConfig{})
		if err != nil || policy == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFindNearest(t *testing.T) {
	for _, c := range []struct{ name, want string }{
		{"lur", "lru"},
		{"rankpol", "rankpool"},
		{"MIN", "min"},
		{"shad", "shade"},
		{"min-partition", "min-partitioned"},
	} {
		s, err := Find(c.name)
		if err == nil {
			t.Errorf("%q was found: %s", c.name, s.Name)
			continue
		}
		if want := `did you mean "` + c.want + `"?`; !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", c.name, err, want)
		}
	}
	for _, name := range []string{"", "foo", "x"} {
		if _, err := Find(name); err == nil || strings.Contains(err.Error(), "did you mean") {
			t.Errorf("%q: %v, want no guess", name, err)
		}
	}
	_, err := NewPolicy("clairvoyan", PolicyConfig{})
	if err == nil || !strings.Contains(err.Error(), `did you mean "clairvoyant"?`) {
		t.Errorf("an unknown policy: %v", err)
	}
}
