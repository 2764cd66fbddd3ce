package rank

import (
	"cmp"
	"encoding/base64"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/mpicache"
	"rankpool/staging/sizes"
)

// CacheOptions are the options that run has for its ranks.
type CacheOptions struct {
	Data        []string
	Choice      Choice
	Memory      string
	Trainers    memory.Trainers
	Window      string
	Tier        string
	System      System
	Log         string
	State       string
	StateAny    bool // begin even if the state file does not match the checkpoint
	PeerTimeout time.Duration
	RankTimeout time.Duration
	Verbose     bool
	Storage     StorageOptions
	LogEvery    time.Duration // between two lines of the run log about each rank
	LogFormat   string
	Metrics     string // address
	Benefit     string

	system string // the value of --system
	rare   tuning
}

// asks returns the memory that the options ask for.
func (o *CacheOptions) asks() memory.Request {
	return memory.Request{Memory: o.Memory, Window: o.Window}
}

// RegisterMain adds the flags that most runs need.
func (o *CacheOptions) RegisterMain(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Data, "data", nil,
		"data set: [NAME=]DIR or [NAME=]MANIFEST; repeatable")
	flags.StringVar(&o.Memory, "memory", memory.Auto, "memory for samples: a share of the data "+
		"over all nodes (20%), a size of each node (64GiB), 0, or auto: what the data need, if the "+
		"node can spare it")
	flags.StringVar(&o.State, "state", "", "keep importance scores in this file; later runs go on "+
		"from it")
	flags.StringVar(&o.Log, "log", "", "write the run log, JSON lines, to this file")
	flags.StringVar(&o.Tier, "tier", "", "DIR:SIZE[,keep|,share]: keep samples that leave memory "+
		"on a disk of the node (docs/memory.md)")
}

// RegisterRest adds the other flags, and returns the options that --tune sets.
func (o *CacheOptions) RegisterRest(flags *pflag.FlagSet) (rare *pflag.FlagSet) {
	o.Choice.Register(flags)
	o.Storage.RegisterLimits(flags)
	flags.StringVar(&o.Metrics, "metrics", "",
		"serve each rank's metrics to Prometheus at this address (:10477)")
	flags.StringVar(&o.system, "system", "rankpool", "caching system: NAME[,OPTION=VALUE…] "+
		"(docs/simulate.md)")
	flags.StringVar(&o.LogFormat, "log-format", messages.Formats[0],
		"format of messages on stderr: "+strings.Join(messages.Formats, ", "))
	flags.StringSliceVar(&o.rare.given, "tune", nil, "NAME=VALUE,…: rare options "+
		"(docs/memory.md)")
	flags.BoolVarP(&o.Verbose, "verbose", "v", false, "log more to stderr")
	o.rare.flags = pflag.NewFlagSet("tune", pflag.ContinueOnError)
	o.registerRare(o.rare.flags)
	return o.rare.flags
}

// Check validates what does not depend on the data and the machine, and makes paths absolute.
func (o *CacheOptions) Check() (err error) {
	if err := o.rare.set(); err != nil {
		return err
	}
	if _, err := memory.Parse(o.Memory); err != nil && o.Memory != memory.Auto {
		return exit.Usagef("--memory: %w (or a share such as 20%%, or %s)", err, memory.Auto)
	}
	if err := o.Trainers.Check(); err != nil {
		return err
	}
	if o.Window != memory.AutoWindow {
		if size, err := sizes.Parse(o.Window); err != nil || size == 0 {
			return exit.Usagef("--tune window: %q is neither %q nor a size such as 512MiB", o.Window,
				memory.AutoWindow)
		}
	}
	if o.System, err = parseSystem(o.system); err != nil {
		return exit.Usagef("--system: %w", err)
	}
	if err := cmp.Or(o.Choice.Check(), o.checkTier(), o.checkSystem(), o.Storage.Check(),
		OneOf("--tune benefit", o.Benefit, mpicache.Benefits),
		OneOf("--log-format", o.LogFormat, messages.Formats),
		checkMetrics(o.Metrics)); err != nil {
		return err
	}
	switch {
	case o.LogEvery < 0:
		return exit.Usagef("--tune log-every must be at least 0s, not %v", o.LogEvery)
	case o.PeerTimeout <= 0:
		return exit.Usagef("--tune peer-timeout must be a positive time, not %v", o.PeerTimeout)
	case o.RankTimeout <= 0:
		return exit.Usagef("--tune rank-timeout must be a positive time, not %v", o.RankTimeout)
	}
	return MakeAbsolute(&o.Log, &o.State)
}

// Options are those of a rank.
type Options struct {
	CacheOptions
	Session  string
	Launch   string // the name of run's launch
	Together bool   // end with the other ranks
	World    int    // the ranks of run's launch

	Identities []string // NAME=DIGEST of the data sets that run began with
}

// variable is the environment variable in which run gives a rank its options.
const variable = "RANKPOOL_OPTIONS"

// Setting returns the environment variable that gives a rank the options, and its value. The value
// is text that every launcher passes on as it is, whatever bytes a path has.
func (o *Options) Setting() (name, value string) {
	var text strings.Builder
	to := base64.NewEncoder(base64.StdEncoding, &text)
	// a strings.Builder takes everything, and gob every one of these fields
	_ = errors.Join(gob.NewEncoder(to).Encode(o), to.Close())
	return variable, text.String()
}

// Given returns the options that run gave this rank.
func Given(getenv func(string) string) (*Options, error) {
	o := new(Options)
	from := base64.NewDecoder(base64.StdEncoding, strings.NewReader(getenv(variable)))
	if err := gob.NewDecoder(from).Decode(o); err != nil {
		return nil, fmt.Errorf("%s, which \"rankpool run\" sets, cannot be read: %w", variable, err)
	}
	return o, nil
}

// OneOf returns an error of wrong usage unless an option's value is one of those allowed.
func OneOf(option, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return exit.Usagef("%s: %q is not one of %s", option, value, strings.Join(allowed, ", "))
}

// Pathless returns the error inside a path error, for sentences that name the path themselves.
func Pathless(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// MakeAbsolute makes paths absolute; "" stays.
func MakeAbsolute(paths ...*string) error {
	for _, path := range paths {
		if *path == "" {
			continue
		}
		abs, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = abs
	}
	return nil
}
