package rank

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
	"rankpool/staging/sizes"
)

// CacheOptions are the flags that run and serve share: run passes those that differ from their
// defaults to every rank.
type CacheOptions struct {
	Data        []string
	Memory      string
	Trainers    memory.Trainers
	Window      string
	tier        string
	packages    string
	System      string
	Policy      string
	scorer      string
	sampler     string // that training must draw with; "": any
	set         []string
	values      systems.Values // of set
	Assign      string
	Log         string
	State       string
	stateAny    bool // begin even if the state file does not match the checkpoint
	peerTimeout time.Duration
	RankTimeout time.Duration
	Verbose     bool
	storage     StorageOptions
	logEvery    time.Duration // between two lines of the run log about each rank
	LogFormat   string
	metrics     string // address
	metricsFile string
	benefit     string

	flags *pflag.FlagSet // of all these
}

// Assignments are the values of --assign.
var Assignments = []string{"local", "sampler"}

// asks returns the memory that the options ask for.
func (o *CacheOptions) asks() memory.Request {
	return memory.Request{Memory: o.Memory, Window: o.Window}
}

// Register adds the flags.
func (o *CacheOptions) Register(flags *pflag.FlagSet) {
	o.flags = pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags.SortFlags = false
	o.register(o.flags)
	flags.AddFlagSet(o.flags)
}

func (o *CacheOptions) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.Data, "data", nil,
		"data set: [NAME=]DIR or [NAME=]MANIFEST; may be given several times")
	flags.StringVar(&o.Memory, "memory", "20%", "memory for samples: a share of the data over "+
		"all nodes (20%), a size of each node (64GiB; a bare number is bytes, at least 1 MiB), "+
		"0, or auto: all that the node can spare")
	o.Trainers.Register(flags)
	flags.StringVar(&o.Window, "window", memory.AutoWindow,
		"memory of each node for samples that are read ahead of their use: a size")
	flags.StringVar(&o.tier, "tier", "", "keep samples that leave memory on a disk of the node: "+
		"DIR:SIZE, with a size of each node (800GiB) or a share of the data (30%); DIR may be "+
		"auto, the node's scratch folder. DIR:SIZE,keep instead keeps copies of samples for your "+
		"next job on the data; DIR:SIZE,share also for other users' jobs")
	flags.StringVar(&o.packages, "packages", "", "with --system icache or impact, write the samples "+
		"that these read in packages to files here and read those: DIR:SIZE, with a size of each "+
		"rank (64GiB)")
	flags.StringVar(&o.System, "system", "rankpool",
		"caching system: its policy, scorer and sampler, see \"rankpool-lab simulate --list\"")
	flags.StringArrayVar(&o.set, "set", nil, "OPTION=VALUE: an option of the system, see "+
		"\"rankpool-lab simulate --list\"; may be given several times")
	flags.StringVar(&o.Policy, "policy", "",
		"decides what stays in memory, instead of the system's policy: "+strings.Join(
			systems.PolicyNames(), ", "))
	flags.StringVar(&o.scorer, "scorer", "",
		"turns losses into importance, instead of the system's scorer: "+strings.Join(
			protocol.ScorerNames(), ", "))
	flags.StringVar(&o.sampler, "sampler", "", "refuse training that draws with another sampler "+
		"(default: the system's, with --system alone): "+strings.Join(draw.SamplerNames(),
		", "))
	flags.StringVar(&o.Assign, "assign", "", "who consumes a draw: local (the trainers of the "+
		"node that has it) or sampler (as the sampler assigns it) (default: local, or with --system "+
		"the system's own)")
	flags.StringVar(&o.benefit, "benefit", mpicache.Benefits[0], "measure what the cache is worth to "+
		"a training, by reading a twentieth of some epochs from storage once more: auto (if several "+
		"trainings or data sets share memory that does not hold all), always, never")
	flags.StringVar(&o.Log, "log", "", "write the run log, JSON lines, to this file")
	flags.DurationVar(&o.logEvery, "log-every", 10*time.Second, "time between two lines of the "+
		"run log about each rank, stretched so that all ranks write at most ten lines a second; "+
		"0: only the epochs")
	flags.StringVar(&o.LogFormat, "log-format", messages.Formats[0],
		"format of messages on stderr: "+strings.Join(messages.Formats, ", "))
	flags.StringVar(&o.metrics, "metrics", "",
		"serve each rank's metrics to Prometheus at this address, e.g. :10477")
	flags.StringVar(&o.metricsFile, "metrics-file", "", "write each rank's metrics to this .prom "+
		"file, or into this folder, for node_exporter's textfile collector")
	flags.StringVar(&o.State, "state", "",
		"keep the importance scores in this file; a later run continues from it")
	flags.BoolVar(&o.stateAny, "state-optional", false, "if --state does not match the checkpoint, "+
		"begin with the scores that it has; without this flag training fails")
	flags.DurationVar(&o.peerTimeout, "peer-timeout", 2*time.Second,
		"how long to wait for another rank before reading storage")
	flags.DurationVar(&o.RankTimeout, "rank-timeout", 2*time.Minute,
		"how long a rank may show no sign of life before it is killed and the cache restarted")
	o.storage.register(flags)
	flags.BoolVarP(&o.Verbose, "verbose", "v", false, "log more to stderr")
}

// Check validates what does not depend on the data and the machine, and makes paths absolute.
func (o *CacheOptions) Check() error {
	if _, err := memory.Parse(o.Memory); err != nil && o.Memory != memory.Auto {
		return exit.Usagef("--memory: %w (or a share such as 20%%, or %s)", err, memory.Auto)
	}
	if err := o.Trainers.Check(); err != nil {
		return err
	}
	if o.Window != memory.AutoWindow {
		if size, err := sizes.Parse(o.Window); err != nil || size == 0 {
			return exit.Usagef("--window: %q is neither %q nor a size such as 512MiB", o.Window,
				memory.AutoWindow)
		}
	}
	if err := cmp.Or(o.checkTier(), o.resolveSystem(), o.checkPackages(),
		o.storage.Check()); err != nil {
		return err
	}
	if err := cmp.Or(OneOf("assign", o.Assign, Assignments),
		OneOf("benefit", o.benefit, mpicache.Benefits),
		OneOf("log-format", o.LogFormat, messages.Formats),
		checkMetrics(o.metrics, &o.metricsFile)); err != nil {
		return err
	}
	switch {
	case o.logEvery < 0:
		return exit.Usagef("--log-every must be at least 0s, not %v", o.logEvery)
	case o.peerTimeout <= 0:
		return exit.Usagef("--peer-timeout must be a positive time, not %v", o.peerTimeout)
	case o.RankTimeout <= 0:
		return exit.Usagef("--rank-timeout must be a positive time, not %v", o.RankTimeout)
	}
	return MakeAbsolute(&o.Log, &o.State)
}

// DropState ignores a state file that is not a regular file, since reading a device or a FIFO may
// never end, and returns a message about it, or "".
func (o *CacheOptions) DropState() string {
	if o.State == "" {
		return ""
	}
	// other errors are reported when the file is used
	if regular, err := IsRegular(o.State); err != nil || regular {
		return ""
	}
	defer func() { o.State = "" }()
	return fmt.Sprintf("--state %s is %s, not a file: importance scores are not kept", o.State,
		KindOf(o.State))
}

// resolveSystem fills in the policy, the scorer, the sampler and the assignment if they were not
// given. A published system determines all of them; rankpool works with every sampler, and leaves
// the choice of the scorer to the sampler.
func (o *CacheOptions) resolveSystem() error {
	system, err := systems.Find(o.System)
	if err != nil {
		return exit.Usagef("--system: %w", err)
	}
	if system.Simulated != "" {
		hint := ""
		if system.NewPolicy != nil {
			hint = fmt.Sprintf("; its policy alone is --policy %s", system.Policy)
		}
		return exit.Usagef("--system: %s is simulated only (rankpool-lab simulate): it %s%s",
			system.Name, system.Simulated, hint)
	}
	if system.Draws() {
		return o.resolveOwn(system)
	}
	if o.Policy == "" && o.scorer == "" && o.sampler == "" && system.Name != "rankpool" {
		o.sampler = system.Sampler
		// the published systems' samplers are DistributedSamplers
		o.Assign = cmp.Or(o.Assign, Assignments[1])
	}
	o.Assign = cmp.Or(o.Assign, Assignments[0])
	o.Policy = cmp.Or(o.Policy, system.Policy)
	if system.Name != "rankpool" {
		o.scorer = cmp.Or(o.scorer, system.Scorer)
	}
	if o.scorer != "" {
		if err := OneOf("scorer", o.scorer, protocol.ScorerNames()); err != nil {
			return err
		}
	}
	if o.sampler != "" {
		if err := OneOf("sampler", o.sampler, draw.SamplerNames()); err != nil {
			return err
		}
	}
	if err := OneOf("policy", o.Policy, systems.PolicyNames()); err != nil {
		return err
	}
	return o.parseSet(system)
}

// resolveOwn fills in the parts of a system that has a sampler of its own. If that sampler decides
// what is kept, memory holds what it chose (policy clairvoyant).
func (o *CacheOptions) resolveOwn(system *systems.System) (err error) {
	policy := system.Policy
	if system.Chooses() {
		policy = "clairvoyant"
	}
	if o.Policy != "" && o.Policy != policy || o.scorer != "" && o.scorer != system.Scorer ||
		o.sampler != "" && o.sampler != system.LiveSampler() {
		return exit.Usagef("--system: %s decides what is drawn and kept: leave --policy, "+
			"--scorer and --sampler out", system.Name)
	}
	if o.Memory == memory.Auto {
		return exit.Usagef("--memory %s: what %s draws depends on the size of the memory: say "+
			"one, best a share of the data", memory.Auto, system.Name)
	}
	o.Policy, o.scorer, o.sampler, o.Assign = policy, system.Scorer, system.LiveSampler(),
		cmp.Or(o.Assign, Assignments[1])
	if o.values, err = system.Parse(o.set); err == nil {
		err = system.CheckLive(o.values)
	}
	if err != nil {
		return exit.Usagef("--set: %w", err)
	}
	return nil
}

// Substitutes returns a warning if training gets samples other than those drawn, else "".
func (o *CacheOptions) Substitutes() string {
	system, err := systems.Find(o.System)
	if err != nil || !system.Substitutes() {
		return ""
	}
	return fmt.Sprintf("--system %s serves other samples than those drawn, as published; they "+
		"are counted as substituted", system.Name)
}

// parseSet parses the options of a published system, which must be unmodified: half of the options
// would mean nothing to another policy or sampler.
func (o *CacheOptions) parseSet(system *systems.System) (err error) {
	if len(o.set) == 0 {
		return nil
	}
	if o.Policy != system.Policy || o.scorer != system.Scorer || o.sampler != system.Sampler {
		return exit.Usagef("--set: only an unmodified system has options (--system %s without "+
			"--policy, --scorer and --sampler)", system.Name)
	}
	if o.values, err = system.Parse(o.set); err != nil {
		return exit.Usagef("--set: %w", err)
	}
	return nil
}

// Args returns the options that differ from their defaults, as flags of serve.
func (o *CacheOptions) Args() []string {
	var args []string
	o.flags.VisitAll(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		switch value := f.Value.String(); {
		case isList:
			for _, value := range list.GetSlice() {
				args = append(args, "--"+f.Name, value)
			}
		case value == f.DefValue:
		case f.Value.Type() == "bool":
			args = append(args, "--"+f.Name+"="+value)
		default:
			args = append(args, "--"+f.Name, value)
		}
	})
	if o.Trainers.PerRank > 0 {
		args = append(args, "--trainers-per-rank", strconv.Itoa(o.Trainers.PerRank))
	}
	return args
}

// Options are the flags of serve.
type Options struct {
	CacheOptions
	MPI      world.MPIOptions
	Session  string
	Launch   string // the name of run's launch; "": serve was called by hand
	Together bool   // end with the other ranks
	World    int    // the ranks of run's launch

	Identities []string // NAME=DIGEST of the data sets that run began with
}

// RegisterServe adds the flags of serve.
func (o *Options) RegisterServe(flags *pflag.FlagSet) {
	o.Register(flags)
	o.MPI.Register(flags)
	flags.IntVar(&o.Trainers.PerRank, "trainers-per-rank", 0, "for --memory auto: training "+
		"processes a rank (default: the job's GPUs here, or 1)")
	flags.StringVar(&o.Session, "session", "",
		"folder of the run on this node; created if missing (default: by job, in /dev/shm)")
	flags.BoolVar(&o.Together, "end-together", false,
		"when asked to end, wait until all ranks were")
	flags.StringVar(&o.Launch, "launch", "", "the name of the launch, the same for all its ranks")
	flags.IntVar(&o.World, "world", 0, "how many ranks the launch has")
	flags.StringArrayVar(&o.Identities, "identity", nil,
		"NAME=DIGEST of a data set that the run began with")
	for _, name := range []string{"end-together", "identity", "launch", "world"} {
		_ = flags.MarkHidden(name) // cannot fail: the flags are defined above
	}
}

// OneOf returns an error of wrong usage unless a flag's value is one of those allowed.
func OneOf(flag, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return exit.Usagef("--%s: %q is not one of %s", flag, value, strings.Join(allowed, ", "))
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
