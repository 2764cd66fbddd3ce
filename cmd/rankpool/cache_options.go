package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/scheduler"
	"rankpool/scheduler/systems"
)

// cacheOptions are the flags that run and serve share: run hands them to every rank as they are.
type cacheOptions struct {
	data        []string
	memory      string
	trainers    memory.Trainers
	window      string
	tier        string
	system      string
	policy      string
	scorer      string
	sampler     string // that training must draw with; "": any
	set         []string
	values      systems.Values // of set
	assign      string
	log         string
	state       string
	stateAny    bool // begin also where the state file is not the one that training needs
	record      string
	peerTimeout time.Duration
	rankTimeout time.Duration
	verbose     bool
	storage     storageOptions
	logEvery    time.Duration // between two lines of the run log about each rank
	logFormat   string
	metrics     string // address
	metricsFile string
}

var assignments = []string{"local", "sampler"}

// asks returns the memory that the options ask for.
func (o *cacheOptions) asks() memory.Request { return memory.Request{Memory: o.memory, Window: o.window} }

func (o *cacheOptions) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&o.data, "data", nil, "data set: [NAME=]DIR or [NAME=]MANIFEST; may be given several times")
	flags.StringVar(&o.memory, "memory", "20%", "memory for samples: a share of the data over all nodes (20%), a size of each node (64GiB; a bare number is bytes, at least 1 MiB), 0, or auto: what the node can spare")
	o.trainers.Register(flags)
	flags.StringVar(&o.window, "window", memory.AutoWindow, "memory of each node for samples read ahead of their use: a size")
	flags.StringVar(&o.tier, "tier", "", "keep what leaves memory on a disk of the node: DIR:SIZE, with a size of each node (800GiB) or a share of the data (30%); DIR may be auto, the node's scratch folder")
	flags.StringVar(&o.system, "system", "rankpool", "published system to be: its policy, scorer and sampler, see \"rankpool simulate --list\"")
	flags.StringArrayVar(&o.set, "set", nil, "OPTION=VALUE: an option of the system, see \"rankpool simulate --list\"; may be given several times")
	flags.StringVar(&o.policy, "policy", "", "what stays in memory, instead of the system's: "+strings.Join(systems.PolicyNames(), ", "))
	flags.StringVar(&o.scorer, "scorer", "", "what makes importance of losses, instead of the system's: "+strings.Join(scheduler.ScorerNames(), ", "))
	flags.StringVar(&o.sampler, "sampler", "", "refuse training that draws with another sampler (default: the system's, with --system alone): "+strings.Join(scheduler.SamplerNames(), ", "))
	flags.StringVar(&o.assign, "assign", "", "who consumes a draw: local (the trainers of the node that has it) or sampler (as the sampler says) (default: local, with --system the system's own)")
	flags.StringVar(&o.log, "log", "", "write the run log, JSON lines, to this file")
	flags.DurationVar(&o.logEvery, "log-every", 10*time.Second, "time between two lines of the run log about each rank, longer where that were more than ten lines a second; 0: only the epochs")
	flags.StringVar(&o.logFormat, "log-format", logFormats[0], "format of the ranks' messages on stderr: "+strings.Join(logFormats, ", "))
	flags.StringVar(&o.metrics, "metrics", "", "show each rank's metrics to Prometheus at this address, e.g. :10477")
	flags.StringVar(&o.metricsFile, "metrics-file", "", "write each rank's metrics to this .prom file, or into this folder, for node_exporter's textfile collector")
	flags.StringVar(&o.state, "state", "", "keep the importance scores in this file; a later run goes on from it")
	flags.BoolVar(&o.stateAny, "state-optional", false, "begin with the scores that there are where --state is not the file that training goes on from; without it training ends there")
	flags.StringVar(&o.record, "record", "", "record what the ranks decide, for \"rankpool replay\": rank 0 writes this file, rank r this name and .r")
	flags.DurationVar(&o.peerTimeout, "peer-timeout", 2*time.Second, "how long to wait for another rank before reading storage")
	flags.DurationVar(&o.rankTimeout, "rank-timeout", 2*time.Minute, "how long a rank may show no sign of life before it is ended and the cache started again")
	o.storage.register(flags)
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "say more on stderr")
}

// check validates what can be told without the data and the machine, and makes paths absolute.
func (o *cacheOptions) check() error {
	if _, err := memory.Parse(o.memory); err != nil && o.memory != memory.Auto {
		return exit.Usagef("--memory: %w, nor a share such as 20%%, nor %s", err, memory.Auto)
	}
	if err := o.trainers.Check(); err != nil {
		return err
	}
	if o.window != memory.AutoWindow {
		if size, err := memory.ParseSize(o.window); err != nil || size == 0 {
			return exit.Usagef("--window: %q is neither %q nor a size such as 512MiB", o.window, memory.AutoWindow)
		}
	}
	if err := o.checkTier(); err != nil {
		return err
	}
	if err := o.resolveSystem(); err != nil {
		return err
	}
	if err := o.storage.check(); err != nil {
		return err
	}
	if err := oneOf("assign", o.assign, assignments); err != nil {
		return err
	}
	if err := oneOf("log-format", o.logFormat, logFormats); err != nil {
		return err
	}
	if err := checkMetrics(o.metrics, &o.metricsFile); err != nil {
		return err
	}
	if o.logEvery < 0 {
		return exit.Usagef("--log-every: %v is no time", o.logEvery)
	}
	if o.peerTimeout <= 0 {
		return exit.Usagef("--peer-timeout: %v is no positive time", o.peerTimeout)
	}
	if o.rankTimeout <= 0 {
		return exit.Usagef("--rank-timeout must be a positive time, not %v", o.rankTimeout)
	}
	for _, path := range []*string{&o.log, &o.state, &o.record} {
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

// dropState leaves out a state file that is none, since reading a device or a FIFO may have no end, and returns what to
// say about it; "" where there is nothing to say.
func (o *cacheOptions) dropState() string {
	if o.state == "" {
		return ""
	}
	if regular, err := isRegular(o.state); err != nil || regular { // an error is told where the file is used
		return ""
	}
	defer func() { o.state = "" }()
	return fmt.Sprintf("--state %s is %s, not a file: importance scores are not kept", o.state, kindOf(o.state))
}

// resolveSystem fills in the policy, the scorer, the sampler and the assignment that were not given. A system that is named as it is has all
// of its own; rankpool goes with every sampler, and leaves the scorer to it.
func (o *cacheOptions) resolveSystem() error {
	system, err := systems.Find(o.system)
	if err != nil {
		return exit.Usagef("--system: %w", err)
	}
	if system.Simulated != "" {
		hint := ""
		if system.NewPolicy != nil {
			hint = fmt.Sprintf("; its policy alone is --policy %s", system.Policy)
		}
		return exit.Usagef("--system: %s is simulated only (rankpool simulate): it %s%s", system.Name, system.Simulated, hint)
	}
	if o.policy == "" && o.scorer == "" && o.sampler == "" && system.Name != "rankpool" {
		o.sampler = system.Sampler
		o.assign = cmp.Or(o.assign, assignments[1]) // the published systems' samplers are DistributedSamplers
	}
	o.assign = cmp.Or(o.assign, assignments[0])
	if o.policy == "" {
		o.policy = system.Policy
	}
	if o.scorer == "" && system.Name != "rankpool" {
		o.scorer = system.Scorer
	}
	if o.scorer != "" {
		if err := oneOf("scorer", o.scorer, scheduler.ScorerNames()); err != nil {
			return err
		}
	}
	if o.sampler != "" {
		if err := oneOf("sampler", o.sampler, scheduler.SamplerNames()); err != nil {
			return err
		}
	}
	if err := oneOf("policy", o.policy, systems.PolicyNames()); err != nil {
		return err
	}
	return o.parseSet(system)
}

// parseSet reads the options of a system, which must be itself: half of them would say nothing to another policy or sampler.
func (o *cacheOptions) parseSet(system *systems.System) (err error) {
	if len(o.set) == 0 {
		return nil
	}
	if o.policy != system.Policy || o.scorer != system.Scorer || o.sampler != system.Sampler {
		return exit.Usagef("--set: options are of a system as it is (--system %s without --policy, --scorer and --sampler)", system.Name)
	}
	if o.values, err = system.Parse(o.set); err != nil {
		return exit.Usagef("--set: %w", err)
	}
	return nil
}

// args returns the options as flags of serve.
func (o *cacheOptions) args() []string {
	var args []string
	for _, data := range o.data {
		args = append(args, "--data", data)
	}
	args = append(args, "--system", o.system)
	for _, word := range o.set {
		args = append(args, "--set", word)
	}
	args = append(args, "--memory", o.memory, "--window", o.window, "--policy", o.policy, "--assign", o.assign,
		"--peer-timeout", o.peerTimeout.String(), "--rank-timeout", o.rankTimeout.String(),
		"--log-every", o.logEvery.String(), "--log-format", o.logFormat)
	if o.scorer != "" {
		args = append(args, "--scorer", o.scorer)
	}
	if o.sampler != "" {
		args = append(args, "--sampler", o.sampler)
	}
	if o.tier != "" {
		args = append(args, "--tier", o.tier)
	}
	if o.log != "" {
		args = append(args, "--log", o.log)
	}
	if o.metrics != "" {
		args = append(args, "--metrics", o.metrics)
	}
	if o.metricsFile != "" {
		args = append(args, "--metrics-file", o.metricsFile)
	}
	if o.state != "" {
		args = append(args, "--state", o.state)
	}
	if o.stateAny {
		args = append(args, "--state-optional")
	}
	if o.record != "" {
		args = append(args, "--record", o.record)
	}
	args = append(args, o.trainers.Args()...)
	args = append(args, o.storage.args()...)
	if o.verbose {
		args = append(args, "--verbose")
	}
	return args
}

func oneOf(flag, value string, allowed []string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return exit.Usagef("--%s: %q is not one of %s", flag, value, strings.Join(allowed, ", "))
}

// pathless returns the error inside a path error, for sentences that name the path themselves.
func pathless(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
