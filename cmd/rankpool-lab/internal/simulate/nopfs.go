package simulate

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/pflag"

	"rankpool/benchmarks/nopfs"
	"rankpool/cmd/internal/exit"
	"rankpool/staging/sizes"
)

// nopfsFlags are the flags that --nopfs can be used with; nopfsOnly are those that need it.
var (
	nopfsFlags = []string{
		"nopfs", "samples", "sizes", "tiers", "systems", "ranks", "batch-size", "epochs", "seed",
		"list", "json", "csv",
	}
	nopfsOnly = []string{"samples", "tiers"}
)

// sizesNormal is the beginning of a --sizes that is a distribution.
const sizesNormal = "normal:"

func (o *Options) registerNoPFS(flags *pflag.FlagSet) {
	flags.StringVar(&o.nopfs, "nopfs", "", "run the NoPFS paper's simulator, which needs no "+
		"losses: a TOML file with a machine and a data set, or one of "+
		strings.Join(nopfs.Names(), ", "))
	flags.IntVar(&o.samples, "samples", 0, "with --nopfs: number of samples (default: the scenario's)")
	flags.StringSliceVar(&o.tiers, "tiers", nil, "with --nopfs: capacities of a worker's staging "+
		"buffer, RAM and SSD, e.g. 5GB,64GB,512GB (default: the scenario's)")
}

// checkNoPFSOnly refuses flags that need --nopfs.
func (o *Options) checkNoPFSOnly() error {
	for _, name := range nopfsOnly {
		if o.flags.Changed(name) {
			return exit.Usagef("--%s needs --nopfs", name)
		}
	}
	if strings.HasPrefix(o.files.SizesBytes, sizesNormal) {
		return exit.Usagef("--sizes %s needs --nopfs; with --losses it is a file", o.files.SizesBytes)
	}
	return nil
}

// runNoPFS runs the policies of the NoPFS paper, and prints their times.
func (o *Options) runNoPFS(parent context.Context, out io.Writer) error {
	var wrong error
	o.flags.Visit(func(f *pflag.Flag) {
		if wrong == nil && !slices.Contains(nopfsFlags, f.Name) {
			wrong = exit.Usagef("--%s has no meaning with --nopfs", f.Name)
		}
	})
	if wrong != nil {
		return wrong
	}
	policies, err := o.nopfsPolicies()
	if err != nil {
		return err
	}
	if o.list {
		for _, name := range policies {
			fmt.Fprintf(out, "%s: %s\n", name, nopfs.About(name))
		}
		return nil
	}
	scenario, err := o.scenario()
	if err != nil {
		return err
	}
	results, err := runPolicies(parent, scenario, policies)
	switch {
	case err != nil:
		return err
	case o.asJSON:
		return printJSONLines(out, results)
	case o.asCSV:
		return printCSV(out, results)
	default:
		return printNoPFS(out, scenario, results)
	}
}

// nopfsPolicies returns the policies that --systems names.
func (o *Options) nopfsPolicies() ([]string, error) {
	known := nopfs.Policies()
	if slices.Equal(o.systems, []string{"all"}) {
		return known, nil
	}
	for i, name := range o.systems {
		if err := CheckName("--systems", name, known); err != nil {
			return nil, err
		}
		if slices.Contains(o.systems[:i], name) {
			return nil, exit.Usagef("--systems lists %s twice", name)
		}
	}
	if len(o.systems) == 0 {
		return nil, exit.Usagef("--systems: which ones? the known ones are all, %s",
			strings.Join(known, ", "))
	}
	return o.systems, nil
}

// scenario returns the scenario that --nopfs names, with the changes of other flags.
func (o *Options) scenario() (*nopfs.Scenario, error) {
	s, err := nopfs.Load(o.nopfs)
	if err != nil {
		return nil, err
	}
	for name, number := range map[string]struct{ to, from *int }{
		"samples": {&s.Samples, &o.samples}, "ranks": {&s.Workers, &o.ranks},
		"batch-size": {&s.BatchSize, &o.batchSize}, "epochs": {&s.Epochs, &o.epochs},
	} {
		if o.flags.Changed(name) {
			*number.to = *number.from
		}
	}
	s.Seed = o.seed
	if o.flags.Changed("sizes") {
		if s.MeanMB, s.DeviationMB, err = parseNormal(o.files.SizesBytes); err != nil {
			return nil, err
		}
	}
	if o.flags.Changed("tiers") {
		if len(o.tiers) != len(s.CapacityMB) {
			return nil, exit.Usagef("--tiers: %d capacities, but a worker of %s has %d tiers",
				len(o.tiers), s.Name, len(s.CapacityMB))
		}
		for j, text := range o.tiers {
			bytes, err := sizes.Parse(text)
			if err != nil {
				return nil, exit.Usagef("--tiers: %w", err)
			}
			s.CapacityMB[j] = float64(bytes) / 1e6
		}
	}
	return s, nil
}

// parseNormal reads "normal:MEAN,DEVIATION".
func parseNormal(text string) (mean, deviation float64, err error) {
	numbers, isNormal := strings.CutPrefix(text, sizesNormal)
	before, after, two := strings.Cut(numbers, ",")
	if isNormal && two {
		if mean, err = strconv.ParseFloat(before, 64); err == nil {
			deviation, err = strconv.ParseFloat(after, 64)
		}
	}
	if !isNormal || !two || err != nil {
		return 0, 0, exit.Usagef("--sizes must be normal:MEAN,DEVIATION in MB with --nopfs, e.g. "+
			"normal:0.1077,0.1, not %q", text)
	}
	return mean, deviation, nil
}

// runPolicies runs one policy after another: each needs memory for every sample.
func runPolicies(parent context.Context, s *nopfs.Scenario, policies []string) (
	[]*nopfs.Result, error,
) {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	bar := newBar(len(policies))
	defer func() { _ = bar.Clear() }()
	results := make([]*nopfs.Result, len(policies))
	for i, name := range policies {
		if err := await(ctx, func() (err error) {
			results[i], err = nopfs.Run(s, name)
			return err
		}); err != nil {
			return nil, err
		}
		_ = bar.Set(i + 1)
	}
	return results, nil
}

// printNoPFS prints a table for people.
func printNoPFS(w io.Writer, s *nopfs.Scenario, results []*nopfs.Result) error {
	fmt.Fprintf(w, "%s: %s samples of %v ± %v MB; %s × batch size %d, %s\n", s.Name,
		humanize.Comma(int64(s.Samples)), s.MeanMB, s.DeviationMB,
		english.Plural(s.Workers, "worker", ""), s.BatchSize, english.Plural(s.Epochs, "epoch", ""))
	name, perfect := len("policy"), 0.0
	for _, r := range results {
		name = max(name, len(r.Policy))
		if r.Policy == "perfect" {
			perfect = r.Seconds
		}
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%-*s\tseconds\t× perfect\tpreload\tstall\tPFS\tremote\tlocal\tGB from PFS\t"+
		"trained on\t\n", name, "policy")
	refused := ""
	for _, r := range results {
		if r.Refused != "" {
			fmt.Fprintf(table, "%-*s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t\n", name, r.Policy)
			refused += fmt.Sprintf("%s cannot be used: %s.\n", r.Policy, r.Refused)
			continue
		}
		ratio := "-"
		if perfect > 0 {
			ratio = fmt.Sprintf("%.3f", r.Seconds/perfect)
		}
		fmt.Fprintf(table, "%-*s\t%.2f\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%.4g\t%s\t\n", name,
			r.Policy, r.Seconds, ratio, r.Preload, r.Stall, r.PFSSeconds, r.RemoteSeconds,
			r.LocalSeconds, r.PFSMB/1000, percentOf(float64(r.Distinct), s.Samples))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, withoutMargin(text.String()), nopfsKey, refused)
	return err
}

const nopfsKey = `
seconds: of the whole training, with preload, which comes before it. stall: a worker's waits for
samples, on average. PFS, remote, local: what a worker's staging threads, or the worker itself, took
to fetch from each, beside training or not. trained on: the share of the samples that were used.
`
