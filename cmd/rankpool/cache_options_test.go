package main

import (
	"strings"
	"testing"

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
