package rank

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankpool/scheduler/systems"
)

// TestSystemIsItselfOrRefused checks that every system named alone uses its own policy, scorer,
// sampler and consumers, even after run has passed the options to serve, or is refused with a
// reason.
func TestSystemIsItselfOrRefused(t *testing.T) {
	ran := 0
	for _, s := range systems.All() {
		o := CacheOptions{}
		o.Register(pflag.NewFlagSet("run", pflag.ContinueOnError))
		o.System = s.Name
		err := o.resolveSystem()
		if s.Simulated != "" {
			if err == nil || !strings.Contains(err.Error(),
				s.Name+" is simulated only (rankpool-lab simulate): it "+s.Simulated) {
				t.Errorf("%s: %v", s.Name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		ran++
		want := CacheOptions{
			System: s.Name, Policy: s.Policy, scorer: s.Scorer, sampler: s.Sampler,
			Assign: "sampler",
		}
		if s.Draws() {
			want.sampler = s.LiveSampler()
		}
		if s.Chooses() {
			want.Policy = "clairvoyant"
		}
		if s.Name == "rankpool" {
			want = CacheOptions{System: s.Name, Policy: s.Policy, Assign: "local"}
		}
		if o.Policy != want.Policy || o.scorer != want.scorer || o.sampler != want.sampler ||
			o.Assign != want.Assign {
			t.Errorf("%s has policy %s, scorer %q, sampler %q, consumers %s; want %s, %q, %q, %s",
				s.Name, o.Policy, o.scorer, o.sampler, o.Assign,
				want.Policy, want.scorer, want.sampler, want.Assign)
		}
		if args := strings.Join(o.Args(), " "); s.Name != "rankpool" &&
			!strings.Contains(args, "--sampler "+want.sampler) {
			t.Errorf("%s: run gives serve %s", s.Name, args)
		}
	}
	if ran != 19 {
		t.Errorf("%d systems can be run", ran)
	}
	mixed := CacheOptions{System: "lru", Policy: "lfu"}
	if err := mixed.resolveSystem(); err != nil || mixed.sampler != "" || mixed.Assign != "local" ||
		mixed.Policy != "lfu" {
		t.Errorf("a system with another policy asks for the sampler %q, consumers %s: %v",
			mixed.sampler, mixed.Assign, err)
	}
}

// TestSetOfARun checks that options of a system reach it, also through serve's flags, and are
// refused where they would have no effect.
func TestSetOfARun(t *testing.T) {
	o := CacheOptions{}
	o.Register(pflag.NewFlagSet("run", pflag.ContinueOnError))
	o.System, o.set = "icache-h", []string{"h_share=0.5", "beta=0.5"}
	if err := o.resolveSystem(); err != nil || o.values.String() != "beta=0.5,h_share=0.5" {
		t.Fatalf("the options are %q: %v", o.values, err)
	}
	served := &CacheOptions{}
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	served.Register(flags)
	if err := flags.Parse(o.Args()); err != nil {
		t.Fatal(err)
	}
	if err := served.resolveSystem(); err != nil || served.values.String() != o.values.String() ||
		served.sampler != "selective" || served.Assign != "sampler" {
		t.Errorf("serve has the options %q, sampler %s, consumers %s: %v", served.values,
			served.sampler, served.Assign, err)
	}
	for want, wrong := range map[string]CacheOptions{
		`it has h_share, rebuild_per_draw, beta, warm_up_epochs`: {System: "icache-h", set: []string{"bet=1"}},
		`"beta" is not of the form OPTION=VALUE`:                 {System: "icache-h", set: []string{"beta"}},
		`icache-h.beta is "x", which is not a number`:            {System: "icache-h", set: []string{"beta=x"}},
		`icache-h.h_share is 2, it must be in`:                   {System: "icache-h", set: []string{"h_share=2"}},
		`icache-h.beta is NaN, it must be in`:                    {System: "icache-h", set: []string{"beta=NaN"}},
		`lru has no options, so none is "x"`:                     {System: "lru", set: []string{"x=1"}},
		`only an unmodified system has options`:                  {System: "icache-h", Policy: "lru", set: []string{"beta=1"}},
	} {
		if err := wrong.resolveSystem(); err == nil ||
			!strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
			t.Errorf("%v of %s: %v, want %s", wrong.set, wrong.System, err, want)
		}
	}
}

// TestServeGetsTheFlags checks that ranks get every flag that run shares with them, and that serve
// without flags has run's defaults.
func TestServeGetsTheFlags(t *testing.T) {
	values := map[string]string{
		"string": "x y", "stringArray": "a=-b", "bool": "true", "duration": "7s", "float64": "0.5",
	}
	for _, given := range []bool{false, true} {
		run, serve := &CacheOptions{}, &Options{}
		of := pflag.NewFlagSet("run", pflag.ContinueOnError)
		run.Register(of)
		of.VisitAll(func(f *pflag.Flag) {
			if !given {
				return
			}
			if err := f.Value.Set(values[f.Value.Type()]); err != nil {
				t.Errorf("--%s of type %s: %v", f.Name, f.Value.Type(), err)
			}
		})
		run.Trainers.PerRank = 3
		ranks := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		serve.RegisterServe(ranks)
		if err := ranks.Parse(run.Args()); err != nil || serve.Trainers.PerRank != 3 {
			t.Fatalf("serve takes %q with %d trainers: %v", run.Args(), serve.Trainers.PerRank, err)
		}
		of.VisitAll(func(f *pflag.Flag) {
			if got := ranks.Lookup(f.Name).Value.String(); got != f.Value.String() ||
				(got != f.DefValue) != given {
				t.Errorf("--%s %s becomes %s", f.Name, f.Value, got)
			}
		})
	}
}
