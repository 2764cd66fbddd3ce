package compare

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"rankpool/scheduler/systems"
)

// optionsOf returns the options that args set, and the error of checking them.
func optionsOf(t *testing.T, command string, args ...string) (*Options, error) {
	t.Helper()
	o, flags := new(Options), pflag.NewFlagSet("compare", pflag.ContinueOnError)
	o.Register(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	o.command = strings.Fields(command)
	o.takeFlags(flags)
	return o, o.check()
}

func TestWrongOptions(t *testing.T) {
	toml := filepath.Join(t.TempDir(), "slow.toml")
	if err := os.WriteFile(toml, []byte("bandwidth = 1\nband = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, command, want string
	}{
		{"--data d", "", "which training command?"},
		{"", "train", "no data set"},
		{"--data d --seeds 0", "train", "--seeds must be at least 1, not 0"},
		{"--data d --seeds 2", "train", "mark the seed's place in the command"},
		{"--data d --target 2", "train", "--target must be above 0 and at most 1, not 2"},
		{"--data d --systems lru,shad", "train", `did you mean "shade"`},
		{"--data d --systems lru,lru", "train", "lru is there twice"},
		{"--data d --systems lru --set shade.x=1", "train", `"shade.x=1" is not SYSTEM.OPTION=VALUE`},
		{"--data d --systems icache --set icache.bet=1", "train", `did you mean "beta"`},
		{"--data d --packages p:1MB --systems lru", "train", "none of the systems lru reads packages"},
		{"--data d --slowfs " + toml, "train", "band"},
	} {
		_, err := optionsOf(t, c.command, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: the error is %v, want one with %q", c.args, c.command, err, c.want)
		}
	}
}

func TestTrainings(t *testing.T) {
	o, err := optionsOf(t, "python train.py --seed {seed} --save m{seed}.pt", "--data", "d",
		"--ranks", "4", "--memory", "10%", "--seeds", "2", "--set", "icache.beta=0.5", "-o", "out")
	if err != nil {
		t.Fatal(err)
	}
	a, b := o.training("icache", 1), o.training("lru", 0)
	if got := strings.Join(a.id.Command, " "); got != "python train.py --seed 1 --save m1.pt" {
		t.Errorf("the command with seed 1 is %q", got)
	}
	if got := strings.Join(a.id.Flags, " "); got != "--memory=10% --ranks=4" {
		t.Errorf("the flags of run are %q", got)
	}
	if len(a.id.Set) != 1 || a.id.Set[0] != "beta=0.5" || len(b.id.Set) != 0 {
		t.Errorf("the options are %q and %q", a.id.Set, b.id.Set)
	}
	if a.dir != filepath.Join("out", "icache", "seed-1") {
		t.Errorf("the folder is %s", a.dir)
	}
}

// TestPackages checks that only systems that read packages get the option, so that only their
// results depend on it.
func TestPackages(t *testing.T) {
	o, err := optionsOf(t, "train", "--data", "d", "--ranks", "2", "--packages", "p:1MiB")
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range Systems {
		want := ""
		if system == "icache" || system == "impact" {
			want = "packages=p:1MiB"
		}
		if got := strings.Join(o.training(system, 0).id.Set, " "); got != want {
			t.Errorf("the options of %s are %q, want %q", system, got, want)
		}
	}
}

// TestSystems checks that the default systems exist.
func TestSystems(t *testing.T) {
	for _, name := range Systems {
		if _, err := systems.Find(name); err != nil {
			t.Error(err)
		}
	}
}

func TestWhyTrainingFailed(t *testing.T) {
	for _, c := range []struct{ said, want string }{
		{"rankpool: --system: shade is not live\n", "--system: shade is not live"},
		{
			"warning\nValueError: no\nrankpool: trainer 0 ended (exit status 1)\nmpirun: noise\n",
			"ValueError: no",
		},
		{"half", ""},
		{"", ""},
	} {
		said := &teller{system: "lru", to: io.Discard}
		for _, part := range []string{c.said[:len(c.said)/2], c.said[len(c.said)/2:]} {
			if _, err := said.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
		}
		if said.last != c.want {
			t.Errorf("after %q it failed because of %q, want %q", c.said, said.last, c.want)
		}
	}
}
