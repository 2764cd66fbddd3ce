package simulate

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/benchmarks/simulator"
	"rankpool/cmd/internal/exit"
)

// defaultJobStep is the default duration of a global batch of a job. Only the ratios between jobs
// matter.
const defaultJobStep = 10 * time.Millisecond

// parseJob returns the job that text describes: NAME=LOSSES.npy,step=…,seed=…, and so on, where
// everything after the name may be left out. number is its place among the jobs.
func (o *Options) parseJob(text string, number int) (simulator.Lane, error) {
	name, rest, _ := strings.Cut(text, "=")
	job := simulator.Lane{Name: name, Seed: o.seed + int64(number), Step: defaultJobStep}
	if name == "" || strings.ContainsAny(name, ", ") {
		return job, exit.Usagef(
			"--job: %q is not of the form NAME=LOSSES.npy,step=20ms,seed=1,start=5s", text)
	}
	words := strings.Split(rest, ",")
	if !strings.Contains(words[0], "=") {
		if words[0] != "" {
			losses, err := simulator.LoadLosses(words[0])
			if err != nil {
				return job, err
			}
			job.Losses = losses
		}
		words = words[1:]
	}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "step":
			job.Step, err = time.ParseDuration(value)
		case "uncached":
			job.Uncached, err = time.ParseDuration(value)
			if err == nil && job.Uncached <= 0 {
				err = strconv.ErrRange
			}
		case "epochs":
			job.Epochs, err = strconv.Atoi(value)
			if err == nil && job.Epochs < 1 {
				err = strconv.ErrRange
			}
		case "data":
			job.Data = value
			if value == "" {
				err = strconv.ErrSyntax
			}
		case "start":
			job.Start, err = time.ParseDuration(value)
		case "seed":
			job.Seed, err = strconv.ParseInt(value, 10, 64)
		default:
			return job, exit.Usagef("--job %s: %q is unknown; there are step, seed, start, data, "+
				"epochs and uncached", name, key)
		}
		if err != nil || job.Step <= 0 || job.Start < 0 {
			return job, exit.Usagef("--job %s: %s must be %s, not %q", name, key,
				map[string]string{
					"step": "a time above 0, such as 20ms", "start": "a time, such as 5s",
					"seed": "a whole number", "epochs": "a whole number above 0",
					"uncached": "a time above 0, such as 50ms", "data": "the name of a data set",
				}[key], value)
		}
	}
	return job, nil
}

// parseJobs returns the jobs that --job describes.
func (o *Options) parseJobs() ([]simulator.Lane, error) {
	var jobs []simulator.Lane
	for number, text := range o.job {
		job, err := o.parseJob(text, number)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(jobs, func(l simulator.Lane) bool { return l.Name == job.Name }) {
			return nil, exit.Usagef("--job: two jobs are called %s", job.Name)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// checkJobs returns an error for flags that have no meaning with named jobs.
func (o *Options) checkJobs() error {
	for _, flag := range []string{
		"jobs", "job-steps", "job-losses", "skip-epochs", "plot", "ids-digest", "csv", "cluster",
		"drop-last", "windows",
	} {
		if o.flags.Changed(flag) {
			return exit.Usagef("--%s does not go with --job: leave one of them out", flag)
		}
	}
	if !slices.Contains([]string{"auto", "never"}, o.benefit) {
		return exit.Usagef("--benefit must be auto or never, not %q", o.benefit)
	}
	if o.flags.Changed("systems") && !slices.Equal(o.systems, []string{"rankpool"}) {
		return exit.Usagef("--systems must be rankpool with --job, not %s", strings.Join(o.systems, ","))
	}
	o.systems = []string{"rankpool"}
	o.skipEpochs = 0
	return nil
}

// runJobs simulates trainings that share a cache, and prints what each got and what all read.
func (o *Options) runJobs(parent context.Context, out io.Writer) error {
	if err := o.checkJobs(); err != nil {
		return err
	}
	study, err := o.study()
	if err != nil {
		return err
	}
	jobs, err := o.parseJobs()
	if err != nil {
		return err
	}
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	var results []*simulator.LanesResult
	for _, cfg := range study.configs(o.ranks, study.capacities) {
		cfg.NoBenefit = o.benefit == "never"
		var r *simulator.LanesResult
		if err := await(ctx, func() (err error) {
			r, err = simulator.RunLanes(cfg, jobs)
			return err
		}); err != nil {
			return err
		}
		results = append(results, r)
	}
	if o.asJSON {
		return printJSONLines(out, results)
	}
	return study.printJobs(out, results)
}

// printJobs prints, for each capacity, a row per job and one for all.
func (s *study) printJobs(w io.Writer, results []*simulator.LanesResult) error {
	samples := s.base.Trace.Samples()
	what := fmt.Sprintf("%s: %s samples, %s of each job", s.trace, humanize.Comma(int64(samples)),
		english.Plural(results[0].Epochs, "epoch", ""))
	if sets := results[0].Data; len(sets) > 0 {
		what = fmt.Sprintf("%d data sets, up to %s of each job", len(sets),
			english.Plural(results[0].Epochs, "epoch", ""))
	}
	if _, err := fmt.Fprintf(w, "%s; %s, sampler %s\n", what, s.setting(),
		results[0].Sampler); err != nil {
		return err
	}
	width := len("all")
	for _, l := range results[0].Lanes {
		width = max(width, len(l.Name))
	}
	name := fmt.Sprintf("%%-%ds", width)
	timed := slices.ContainsFunc(results[0].Lanes,
		func(l simulator.LaneResult) bool { return l.Benefit > 0 || l.Speedup > 0 })
	for _, d := range results[0].Data {
		width = max(width, len(dataName(d.Name)))
	}
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, name+"\tcapacity\tdraws\thits\tdata sets read an epoch\tby MIN\t", "job")
	row := func(r *simulator.LanesResult, l simulator.LaneResult, reads string) {
		fmt.Fprintf(table, name+"\t%s\t%d\t%s\t%s\t", l.Name, percentOf(r.Capacity, 1), l.Draws,
			percentOf(float64(l.Hits), l.Draws), reads)
		if timed {
			fmt.Fprintf(table, "%s\t%s\t", twoPlaces(l.Benefit), twoPlaces(l.Speedup))
		}
		fmt.Fprintln(table)
	}
	if timed {
		fmt.Fprint(table, "benefit\ttimes as fast\t")
	}
	fmt.Fprintln(table)
	for _, r := range results {
		all := simulator.LaneResult{Name: "all", Speedup: r.Speedup}
		for _, l := range r.Lanes {
			row(r, l, "\t")
			all.Draws, all.Hits = all.Draws+l.Draws, all.Hits+l.Hits
		}
		one := float64(samples * r.Epochs)
		if len(r.Data) > 0 {
			one = 0
		}
		for _, d := range r.Data {
			one += float64(d.Samples * d.Epochs)
		}
		row(r, all, fmt.Sprintf("%.3f\t%.3f", float64(r.Reads)/one, float64(r.MinReads)/one))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if err := s.printData(&text, results); err != nil {
		return err
	}
	key := jobsKey
	if timed {
		key += timedKey
	}
	_, err := fmt.Fprint(w, withoutMargin(text.String()), key)
	return err
}

// printData prints, for each capacity, a row per data set, if there are several.
func (s *study) printData(w io.Writer, results []*simulator.LanesResult) error {
	if len(results[0].Data) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\ndata\tcapacity\tsamples\tread an epoch\tkept\t")
	for _, r := range results {
		for _, d := range r.Data {
			fmt.Fprintf(table, "%s\t%s\t%d\t%.3f\t%s\t\n", dataName(d.Name), percentOf(r.Capacity, 1),
				d.Samples, float64(d.Reads)/float64(d.Samples*d.Epochs), percentOf(d.Kept, 1))
		}
	}
	return table.Flush()
}

func dataName(name string) string { return cmp.Or(name, "-") }

// twoPlaces formats a number, and nothing if it is 0.
func twoPlaces(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", x)
}

const jobsKey = `
Data sets read an epoch: samples read from storage by all jobs together, over the samples of the
data sets and the epochs of a job. by MIN: the same of Bélády's offline optimum, which knows the
order in which all jobs draw.
`

const timedKey = `
benefit: what the ranks measured last. times as fast: as without a cache, from the time when all
jobs have trained 5 epochs until the first one ends; of all, the mean. kept: the share of the data
set that its part of the memory holds then.
`
