package batchscript

import (
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/spf13/pflag"
)

// testFacts are those of a build with Open MPI, with the flags of rankpool that the tests use.
func testFacts() Facts {
	flags := map[string]*pflag.FlagSet{}
	for _, name := range []string{"run", "serve", "stage", "pack", "index", "join", "end"} {
		f := pflag.NewFlagSet(name, pflag.ContinueOnError)
		f.StringArray("data", nil, "")
		f.String("memory", "20%", "")
		f.String("log", "", "")
		f.String("state", "", "")
		f.String("mode", "", "")
		f.String("session", "", "")
		f.Int("ranks", 0, "")
		f.Int("trainers-per-rank", 1, "")
		f.Bool("requeue", false, "")
		f.BoolP("verbose", "v", false, "")
		f.StringP("output", "o", "", "")
		flags[name] = f
	}
	return Facts{
		MPI:    "pmix",
		Flags:  func(subcommand string) *pflag.FlagSet { return flags[subcommand] },
		Exists: func(path string) bool { return !strings.Contains(path, "missing") },
		Size: func(memory string) (int64, bool) {
			n, err := humanize.ParseBytes(memory)
			return int64(n), err == nil
		},
	}
}
