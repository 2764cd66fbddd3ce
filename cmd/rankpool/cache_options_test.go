package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankpool/scheduler/systems"
)

// TestSystemIsItselfOrRefused has every system that is named alone come with its own policy, scorer, sampler and consumers, also when run
// hands the options on to serve, or be refused with the reason.
func TestSystemIsItselfOrRefused(t *testing.T) {
	ran := 0
	for _, s := range systems.All() {
		o := cacheOptions{system: s.Name}
		err := o.resolveSystem()
		if s.Simulated != "" {
			if err == nil || !strings.Contains(err.Error(), s.Name+" is simulated only (rankpool simulate): it "+s.Simulated) {
				t.Errorf("%s: %v", s.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		ran++
		want := cacheOptions{system: s.Name, policy: s.Policy, scorer: s.Scorer, sampler: s.Sampler, assign: "sampler"}
		if s.Name == "rankpool" {
			want = cacheOptions{system: s.Name, policy: s.Policy, assign: "local"}
		}
		if o.policy != want.policy || o.scorer != want.scorer || o.sampler != want.sampler || o.assign != want.assign {
			t.Errorf("%s has policy %s, scorer %q, sampler %q, consumers %s; want %s, %q, %q, %s", s.Name, o.policy, o.scorer, o.sampler, o.assign,
				want.policy, want.scorer, want.sampler, want.assign)
		}
		if args := strings.Join(o.args(), " "); s.Name != "rankpool" && !strings.Contains(args, "--sampler "+s.Sampler) {
			t.Errorf("%s: run gives serve %s", s.Name, args)
		}
	}
	if ran != 12 {
		t.Errorf("%d systems can be run", ran)
	}
	mixed := cacheOptions{system: "lru", policy: "lfu"}
	if err := mixed.resolveSystem(); err != nil || mixed.sampler != "" || mixed.assign != "local" || mixed.policy != "lfu" {
		t.Errorf("a system with another policy asks for the sampler %q, consumers %s: %v", mixed.sampler, mixed.assign, err)
	}
}

// TestSetOfARun has options of a system reach it, also through serve's flags, and be refused where they would say nothing.
func TestSetOfARun(t *testing.T) {
	o := cacheOptions{system: "icache-h", set: []string{"h_share=0.5", "beta=0.5"}}
	if err := o.resolveSystem(); err != nil || o.values.String() != "beta=0.5,h_share=0.5" {
		t.Fatalf("the options are %q: %v", o.values, err)
	}
	served := &cacheOptions{}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	served.register(flags)
	if err := flags.Parse(o.args()); err != nil {
		t.Fatal(err)
	}
	if err := served.resolveSystem(); err != nil || served.values.String() != o.values.String() || served.sampler != "selective" || served.assign != "sampler" {
		t.Errorf("serve has the options %q, sampler %s, consumers %s: %v", served.values, served.sampler, served.assign, err)
	}
	for want, wrong := range map[string]cacheOptions{
		`it has h_share, rebuild_per_draw, beta, warm_up_epochs`: {system: "icache-h", set: []string{"bet=1"}},
		`"beta" is not of the form OPTION=VALUE`:                 {system: "icache-h", set: []string{"beta"}},
		`icache-h.beta is "x", which is no number`:               {system: "icache-h", set: []string{"beta=x"}},
		`icache-h.h_share is 2, it must be in`:                   {system: "icache-h", set: []string{"h_share=2"}},
		`icache-h.beta is NaN, it must be in`:                    {system: "icache-h", set: []string{"beta=NaN"}},
		`lru has no options, so none is "x"`:                     {system: "lru", set: []string{"x=1"}},
		`options are of a system as it is`:                       {system: "icache-h", policy: "lru", set: []string{"beta=1"}},
	} {
		if err := wrong.resolveSystem(); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("%v of %s: %v, want %s", wrong.set, wrong.system, err, want)
		}
	}
}
