package batchscript

import (
	"strings"

	"github.com/spf13/pflag"

	"rankpool/staging/sizes"
)

// testFacts describes a build with Open MPI, with the flags of rankpool that the tests use.
func testFacts() Facts {
	flags := map[string]*pflag.FlagSet{}
	names := []string{"run", "stage", "pack", "index", "join", "end", "doctor"}
	for _, name := range names {
		f := pflag.NewFlagSet(name, pflag.ContinueOnError)
		f.StringArray("data", nil, "")
		f.String("memory", "20%", "")
		f.String("log", "", "")
		f.String("state", "", "")
		f.String("mode", "", "")
		f.StringArray("tier", nil, "")
		f.StringSlice("only", nil, "")
		f.String("session", "", "")
		f.String("job", "", "")
		f.Int("ranks", 0, "")
		f.Int("trainers-per-rank", 1, "")
		f.String("requeue", "", "")
		f.Lookup("requeue").NoOptDefVal = "USR1"
		f.Bool("help", false, "")
		f.BoolP("verbose", "v", false, "")
		f.StringP("output", "o", "", "")
		flags[name] = f
	}
	return Facts{
		MPI:   "pmix",
		Flags: func(subcommand string) *pflag.FlagSet { return flags[subcommand] },
		Size: func(memory string) (int64, error) {
			if memory == "auto" || strings.HasSuffix(memory, "%") {
				return 0, nil
			}
			return sizes.Parse(memory)
		},
	}
}
