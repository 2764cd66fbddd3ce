// Package simulate is "rankpool-lab simulate": its options, tables, plots and lists around
// benchmarks/simulator.
package simulate

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rankpool/benchmarks/simulator"
	"rankpool/cmd/internal/exit"
)

// Options are the flags of simulate.
type Options struct {
	files                    simulator.TraceFiles
	systems                  []string
	capacity                 []string
	ranks, trainers          int
	batchSize                int
	windows                  []int
	epochs, skipEpochs, jobs int
	seed                     int64
	sampler, scorer, policy  string
	cluster                  string
	set                      []string
	jobSteps                 []time.Duration
	jobLosses, job           []string
	plotDir                  string
	asJSON, asCSV, list      bool
	idsDigest, dropLast      bool
	benefit                  string
	nopfs                    string
	samples                  int
	tiers                    []string
	flags                    *pflag.FlagSet
}

// defaultCluster is the machine that is modelled by default: its accelerators are fast enough for
// storage to matter.
const defaultCluster = "mlperf-resnet50"

// defaultSkip is how many epochs warm up the cache before counting begins.
const defaultSkip = 3

// Register adds the flags of simulate.
func (o *Options) Register(flags *pflag.FlagSet) {
	o.flags = flags
	o.registerNoPFS(flags)
	flags.StringVar(&o.files.Losses, "losses", "",
		"floats [epochs, samples]; NaN and infinite count as not reported")
	flags.StringVar(&o.files.Labels, "labels", "", "integers [samples]: the samples' classes")
	flags.StringVar(&o.files.Embeddings, "embeddings", "",
		"floating point [epochs, samples, dimensions]")
	flags.StringVar(&o.files.Accuracies, "accuracies", "", "floats [epochs]: the metric "+
		"\"accuracy\" that training reports after each epoch (default: none)")
	flags.StringVar(&o.files.SizesBytes, "sizes", "",
		"integers [samples]: bytes (default: all equal, from --cluster); with --nopfs "+
			"normal:MEAN,DEVIATION in MB, e.g. normal:0.1077,0.1")
	flags.StringSliceVar(&o.systems, "systems", []string{"all"},
		"names separated by commas, see --list")
	flags.StringSliceVar(&o.capacity, "capacity", []string{"0.1", "0.2", "0.4"},
		"total memory of all ranks, as shares of the data's bytes")
	flags.IntVar(&o.ranks, "ranks", 4, "nodes")
	flags.IntVar(&o.trainers, "trainers-per-rank", 1,
		"trainers of each node, each with its own part of a global batch and its own data loader")
	flags.IntVar(&o.batchSize, "batch-size", 64, "batch size of a trainer")
	flags.IntSliceVar(&o.windows, "windows", nil, "ROWS[,PER_PIECE]: samples are windows of so many "+
		"rows, and memory holds pieces of so many (default: 1), all of one size (docs/data.md)")
	flags.BoolVar(&o.dropLast, "drop-last", false,
		"leave out an epoch's last global batch if it is not full, as a DataLoader's drop_last")
	flags.IntVar(&o.epochs, "epochs", 0, "number of epochs (default: as many as there are losses)")
	flags.IntVar(&o.skipEpochs, "skip-epochs", defaultSkip, "first epochs that are not counted")
	flags.Int64Var(&o.seed, "seed", 0, "seed of the draws")
	flags.StringVar(&o.sampler, "sampler", "",
		"replace the sampler of every system, so that all have the same draws: one of "+KnownSamplers())
	flags.StringVar(&o.scorer, "scorer", "",
		"replace the scorer of every system: one of "+knownScorers())
	flags.StringVar(&o.policy, "policy", "",
		"replace the policy of every system but the bounds: one of "+knownPolicies())
	flags.IntVar(&o.jobs, "jobs", 1, "trainings that run at the same time and share the memory")
	flags.DurationSliceVar(&o.jobSteps, "job-steps", nil,
		"duration of a step of each job, e.g. 20ms,80ms (default: the cluster's)")
	flags.StringSliceVar(&o.jobLosses, "job-losses", nil, "a file of losses for each job, as "+
		"--losses, e.g. A.npy,B.npy (default: all have those of --losses)")
	flags.StringArrayVar(&o.job, "job", nil, "NAME=LOSSES.npy,step=20ms,seed=1,start=5s: one "+
		"of several trainings on the same memory, run by the code of real ranks; may be given "+
		"several times; all after NAME is optional (losses: --losses; seeds: --seed + 0, 1, …); "+
		"also epochs=10, data=D (the name of another data set), uncached=50ms (a step without the "+
		"cache)")
	flags.StringVar(&o.benefit, "benefit", "auto", "with --job: auto measures what the cache is "+
		"worth to each job, and divides memory by it; never divides it by size")
	flags.StringVar(&o.cluster, "cluster", defaultCluster,
		"the machine of the time model: a TOML file, or the name of a built-in one")
	flags.StringArrayVar(&o.set, "set", nil,
		"SYSTEM.OPTION=VALUE: an option of a system, see --list; may be given several times")
	flags.StringVar(&o.plotDir, "plot", "", "folder for plots, SVG and PNG")
	flags.BoolVar(&o.idsDigest, "ids-digest", false, "with --json or --csv: a digest of the ids "+
		"that training was served in all epochs, as train.py --ids-digest prints it")
	flags.BoolVar(&o.asJSON, "json", false, "print a JSON array, one object per system and capacity")
	flags.BoolVar(&o.asCSV, "csv", false, "print comma-separated values")
	flags.BoolVar(&o.list, "list", false, "print the systems and their options, and exit")
}

// Run simulates, and prints and plots the results.
func (o *Options) Run(parent context.Context, out io.Writer) error {
	if o.asJSON && o.asCSV {
		return exit.Usagef("--json and --csv exclude each other: give one of them")
	}
	if o.idsDigest && !o.asJSON && !o.asCSV {
		return exit.Usagef("--ids-digest needs --json or --csv: the table has no room for it")
	}
	if o.nopfs != "" {
		return o.runNoPFS(parent, out)
	}
	if err := o.checkNoPFSOnly(); err != nil {
		return err
	}
	if o.list {
		return o.printList(out)
	}
	if len(o.job) > 0 {
		return o.runJobs(parent, out)
	}
	if o.flags.Changed("benefit") {
		return exit.Usagef("--benefit needs --job: without it nothing is measured")
	}
	study, err := o.study()
	if err != nil {
		return err
	}
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	results, err := simulateAll(ctx, study.configs(o.ranks, study.capacities))
	if err != nil {
		return err
	}
	if o.plotDir != "" {
		if err := study.plot(ctx, o.plotDir, results); err != nil {
			return err
		}
	}
	switch {
	case o.asJSON:
		return printJSONLines(out, results)
	case o.asCSV:
		return printCSV(out, results)
	default:
		return study.printTable(out, results)
	}
}

// simulateAll runs simulations, as many concurrently as there are processors, and returns their
// results in the order of configs. If several fail, it returns the first error.
func simulateAll(ctx context.Context, configs []simulator.Config) ([]*simulator.Result, error) {
	bar := newBar(len(configs))
	defer func() { _ = bar.Clear() }()
	results := make([]*simulator.Result, len(configs))
	errs := make([]error, len(configs))
	done := make(chan int)
	begin := make(chan int, len(configs))
	for i := range configs {
		begin <- i
	}
	close(begin)
	for range runtime.GOMAXPROCS(0) {
		go func() {
			for i := range begin {
				if ctx.Err() != nil {
					return
				}
				results[i], errs[i] = simulator.Run(configs[i])
				select {
				case done <- i:
				case <-ctx.Done():
				}
			}
		}()
	}
	for n := range configs {
		select {
		case <-done:
			_ = bar.Set(n + 1)
		case <-ctx.Done(): // Running simulations end with the process.
			return nil, context.Cause(ctx)
		}
	}
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// newBar returns a bar that shows on stderr how many simulations are done; without a terminal it
// shows nothing. What cannot be written to a terminal changes nothing.
func newBar(simulations int) *progressbar.ProgressBar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return progressbar.DefaultSilent(int64(simulations))
	}
	return progressbar.NewOptions(simulations,
		progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription("simulating"),
		progressbar.OptionSetWidth(20), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
}

// await waits for run, or for the end of ctx, whose cause it returns: a running simulation ends
// with the process.
func await(ctx context.Context, run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// note prints a remark about a run to stderr.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "rankpool-lab: "+format+"\n", args...)
}
