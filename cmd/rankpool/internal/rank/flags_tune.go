package rank

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/mpicache"
)

func (o *CacheOptions) registerRare(flags *pflag.FlagSet) {
	flags.StringVar(&o.Window, "window", memory.AutoWindow, "")
	flags.StringVar(&o.Trainers.Memory, "trainer-memory", "", "")
	flags.StringVar(&o.Benefit, "benefit", mpicache.Benefits[0], "")
	flags.DurationVar(&o.LogEvery, "log-every", 10*time.Second, "")
	flags.BoolVar(&o.StateAny, "state-optional", false, "")
	flags.DurationVar(&o.PeerTimeout, "peer-timeout", 2*time.Second, "")
	flags.DurationVar(&o.RankTimeout, "rank-timeout", 2*time.Minute, "")
}

// A tuning is the value of --tune: options that few runs need, in one flag.
type tuning struct {
	flags *pflag.FlagSet
	given []string // NAME=VALUE
}

func (t *tuning) set() error {
	for _, word := range t.given {
		name, value, found := strings.Cut(word, "=")
		option := t.flags.Lookup(name)
		if !found || option == nil {
			var names []string
			t.flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			return exit.Usagef("--tune: %q is not NAME=VALUE, with one of the names %s", word,
				strings.Join(names, ", "))
		}
		if err := option.Value.Set(value); err != nil && option.Value.Type() == "duration" {
			return exit.Usagef("--tune %s: %q is not a time such as 5s or 2m", name, value)
		} else if err != nil {
			return exit.Usagef("--tune %s: %w", name, err)
		}
	}
	return nil
}
