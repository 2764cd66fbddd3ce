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
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/benchmarks/simulator"
	"rankpool/cmd/rankpool/internal/exit"
)

// defaultJobStep is the default time of a global batch of a job. Only the ratios of the jobs' steps
// matter.
const defaultJobStep = 10 * time.Millisecond

// parseJob returns the job that text describes: NAME=LOSSES.npy,step=…,seed=…,start=…, where all
// after the name may be left out. number is its place among the jobs.
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
		case "start":
			job.Start, err = time.ParseDuration(value)
		case "seed":
			job.Seed, err = strconv.ParseInt(value, 10, 64)
		default:
			return job, exit.Usagef("--job %s: %q is unknown; there are step, seed and start", name,
				key)
		}
		if err != nil || job.Step <= 0 || job.Start < 0 {
			return job, exit.Usagef("--job %s: %s must be %s, not %q", name, key,
				map[string]string{
					"step": "a time above 0, such as 20ms", "start": "a time, such as 5s",
					"seed": "a whole number",
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
		if slices.ContainsFunc(jobs,
			func(other simulator.Lane) bool { return other.Name == job.Name }) {
			return nil, exit.Usagef("--job: two jobs are called %s", job.Name)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// checkJobs returns an error for flags that have no meaning with jobs by name.
func (o *Options) checkJobs() error {
	for _, flag := range []string{
		"jobs", "job-steps", "job-losses", "skip-epochs", "plot", "ids-digest", "csv", "cluster",
	} {
		if o.flags.Changed(flag) {
			return exit.Usagef("--%s does not go with --job: leave one of them out", flag)
		}
	}
	if o.flags.Changed("systems") && !slices.Equal(o.systems, []string{"rankpool"}) {
		return exit.Usagef("--systems must be rankpool with --job, not %s",
			strings.Join(o.systems, ","))
	}
	o.systems = []string{"rankpool"}
	o.skipEpochs, o.SkipGiven = 0, true
	return nil
}

// runJobs simulates trainings that share a cache, and prints what each was given and what all read.
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
		done := make(chan struct{})
		var r *simulator.LanesResult
		var err error
		go func() {
			r, err = simulator.RunLanes(cfg, jobs)
			close(done)
		}()
		select {
		case <-done:
		case <-ctx.Done(): // a running simulation ends with the process
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if o.asJSON {
		return printJSONLines(out, results)
	}
	return study.printJobs(out, results)
}

// printJobs prints a row a job, and one of all, for each capacity.
func (s *study) printJobs(w io.Writer, results []*simulator.LanesResult) error {
	samples := s.base.Trace.Samples()
	if _, err := fmt.Fprintf(w, "%s: %s samples, %s of each job; %s, sampler %s\n", s.trace,
		humanize.Comma(int64(samples)), english.Plural(s.base.Epochs, "epoch", ""), s.setting(),
		results[0].Sampler); err != nil {
		return err
	}
	width := len("all")
	for _, l := range results[0].Lanes {
		width = max(width, len(l.Name))
	}
	name := fmt.Sprintf("%%-%ds", width)
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, name+"\tcapacity\tdraws\thits\tdata sets read an epoch\tby MIN\t\n", "job")
	for _, r := range results {
		draws, hits := int64(0), int64(0)
		for _, l := range r.Lanes {
			fmt.Fprintf(table, name+"\t%s\t%d\t%s\t\t\t\n", l.Name, percentOf(r.Capacity, 1), l.Draws,
				percentOf(float64(l.Hits), l.Draws))
			draws, hits = draws+l.Draws, hits+l.Hits
		}
		one := float64(samples * r.Epochs)
		fmt.Fprintf(table, name+"\t%s\t%d\t%s\t%.3f\t%.3f\t\n", "all", percentOf(r.Capacity, 1), draws,
			percentOf(float64(hits), draws), float64(r.Reads)/one, float64(r.MinReads)/one)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, strings.ReplaceAll("\n"+text.String(), "\n  ", "\n"), jobsKey)
	return err
}

const jobsKey = `
Data sets read an epoch: samples read from storage by all jobs together, over the samples of the
data set and the epochs of a job. by MIN: the same of Bélády's offline optimum, which knows the
order in which all jobs draw.
`
