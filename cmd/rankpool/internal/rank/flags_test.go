package rank

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankpool/scheduler/systems"
)

// parsed returns the options of flags that are valid but for the error.
func parsed(t *testing.T, args ...string) (*Options, error) {
	t.Helper()
	o, flags := new(Options), pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.RegisterMain(flags)
	o.RegisterRest(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return o, o.Check()
}

// TestSystemIsItselfOrRefused checks that every system named alone uses its own policy, scorer,
// sampler and consumers, or is refused with a reason.
func TestSystemIsItselfOrRefused(t *testing.T) {
	ran := 0
	for _, s := range systems.All() {
		got, err := parseSystem(s.Name)
		if s.Simulated != "" {
			if err == nil || !strings.Contains(err.Error(),
				s.Name+" is simulated only (rankpool-lab simulate): it "+s.Simulated) {
				t.Errorf("%s: %v", s.Name, err)
			}
			continue
		}
		ran++
		want := System{
			Name: s.Name, Policy: s.Policy, Scorer: s.Scorer, Sampler: s.Sampler, Assign: "sampler",
			Options: systems.Values{},
		}
		if s.Draws() {
			want.Sampler = s.LiveSampler()
		}
		if s.Chooses() {
			want.Policy = "clairvoyant"
		}
		if s.Name == "rankpool" {
			want.Scorer, want.Sampler, want.Assign = "", "", "local"
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v: %v", s.Name, got, want, err)
		}
	}
	if ran != 19 {
		t.Errorf("%d systems can be run", ran)
	}
}

// TestOptionsOfSystem checks that options of a system reach it, and are refused by name where they
// are unknown or have no effect.
func TestOptionsOfSystem(t *testing.T) {
	for text, want := range map[string]string{
		"lru,policy=lfu":                  "lru,policy=lfu,assign=local",
		"rankpool,policy=lru,scorer=loss": "rankpool,policy=lru,scorer=loss,assign=local",
		"lru,assign=local":                "lru,policy=lru,sampler=torch,assign=local",
		"icache-h,h_share=0.5,beta=0.5": "icache-h,policy=icache-h,scorer=loss," +
			"sampler=selective,assign=sampler,beta=0.5,h_share=0.5",
		"icache,packages=/a:1MiB": "icache,policy=clairvoyant,scorer=loss,sampler=icache," +
			"assign=sampler",
	} {
		if got, err := parseSystem(text); err != nil || got.String() != want {
			t.Errorf("%s is %s, want %s: %v", text, got, want, err)
		}
	}
	for text, want := range map[string]string{
		"icache-h,bet=1":     `icache-h has no option "bet" (did you mean "beta"?); it takes h_share, rebuild_per_draw, beta, warm_up_epochs, fraction, policy, scorer, sampler, assign`,
		"icache-h,beta":      `"beta" is not of the form OPTION=VALUE`,
		"icache-h,":          `"" is not of the form OPTION=VALUE`,
		"icache-h,beta=x":    `icache-h.beta is "x", which is not a number`,
		"icache-h,h_share=2": `icache-h.h_share is 2, it must be in`,
		"icache-h,beta=NaN":  `icache-h.beta is NaN, it must be in`,
		"lru,x=1":            `lru has no option "x"; it takes policy, `,
		"icache-h,policy=lru,beta=1": `icache-h has the option "beta=1" only as it is: leave ` +
			`policy, scorer and sampler out`,
		"quiver,policy=lru":      `quiver has no option "policy"`,
		"shade,packages=/a:1MiB": `shade has no option "packages"`,
		"lru,policy=fifo":        `policy: "fifo" is not one of lru, `,
	} {
		if _, err := parseSystem(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestRanksGetOptions checks that a rank gets what run has checked, and that wrong values of --tune
// are refused by name.
func TestRanksGetOptions(t *testing.T) {
	o, err := parsed(t, "--data", "a=\xff,'\"", "--data", "b", "--memory", "auto", "--metrics", ":1",
		"--system", "icache-h,beta=0.5", "--tier", "/a:1GiB", "--max-opens", "0.5",
		"--tune", "window=1MiB", "--tune", "log-every=7s,trainer-memory=1GiB")
	if err != nil {
		t.Fatal(err)
	}
	o.Launch, o.World, o.Identities = "once", 3, []string{"a=0"}
	name, value := o.Setting()
	got, err := Given(func(asked string) string {
		if asked != name {
			return ""
		}
		return value
	})
	want := *o
	want.rare, want.system = tuning{}, ""
	if err != nil || !reflect.DeepEqual(*got, want) {
		t.Errorf("a rank gets\n%+v, want\n%+v: %v", got, &want, err)
	}
	if got.Window != "1MiB" || got.LogEvery.Seconds() != 7 {
		t.Errorf("--tune sets %+v", got)
	}
	if _, err := Given(func(string) string { return "" }); err == nil {
		t.Error("a rank by hand gets options")
	}
	for given, want := range map[string]string{
		"windo=1MiB":      `--tune: "windo=1MiB" is not NAME=VALUE, with one of the names benefit, log-every, `,
		"window":          `--tune: "window" is not NAME=VALUE`,
		"log-every=often": `--tune log-every: `,
		"benefit=x":       `--tune benefit: "x" is not one of auto, `,
		"peer-timeout=0s": `--tune peer-timeout must be a positive time, not 0s`,
		"window=none":     `--tune window: "none" is neither "auto" nor a size`,
	} {
		if _, err := parsed(t, "--tune", given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--tune %s: %v, want %s", given, err, want)
		}
	}
}
