package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/pool"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
	"rankpool/staging/dataset"
	"rankpool/staging/stage"
)

func (o *stageOptions) checkPool() error {
	switch {
	case o.dest != "":
		return exit.Usagef(
			"--dest: --mode pool stages into the memory of a cache that runs; leave --dest out")
	case o.dryRun:
		return exit.Usagef("--dry-run cannot be used with --mode pool: only the ranks know what fits")
	case o.waitSeconds < 0:
		return exit.Usagef("--wait must be at least 0 seconds, not %v", o.waitSeconds)
	}
	return o.part.check()
}

// stagePool stages into the ranks of this machine; several tasks on it share the ranks.
func (o *stageOptions) stagePool(cmd *cobra.Command, at world.Place) error {
	ctx, stop := exit.Interruptible(cmd.Context())
	defer stop()
	if err := o.findSession(); err != nil {
		return err
	}
	search := pool.Search{
		Session: o.session, Data: o.data, Ranks: o.ranks,
		Tasks: max(1, at.LocalTasks), Task: at.LocalTask,
		Wait: time.Duration(o.waitSeconds * float64(time.Second)),
		Waiting: func(err error) {
			if !o.quiet && at.LocalTask == 0 {
				fmt.Fprintf(os.Stderr, "rankpool: waiting for the cache: %v\n", err)
			}
		},
	}
	ranks, err := search.Await(ctx)
	defer pool.Close(ranks)
	if err != nil || len(ranks) == 0 { // other tasks have all ranks
		return err
	}
	m, err := dataset.OpenIndex(ranks[0].Index())
	if err != nil {
		return err
	}
	ids, err := o.part.ordered(m)
	if err != nil {
		return err
	}
	show := newStageProgress(os.Stderr, o.quiet, o.progressSeconds)
	report, err := search.Fill(ctx, ranks, m, ids, show.update)
	show.end()
	return o.concludePool(cmd, report, err)
}

// findSession finds the session folder: from the flag, from the variable of training processes, or
// from the job.
func (o *stageOptions) findSession() (err error) {
	if o.session = cmp.Or(o.session, os.Getenv("RANKPOOL_SESSION")); o.session != "" {
		return nil
	}
	job := slurm.Detect(os.Getenv)
	if job.JobID == "" {
		return exit.Usagef("which cache? name its folder with --session DIR, as for " +
			"\"rankpool serve\"")
	}
	o.session, err = session.OfJob(job)
	return err
}

// concludePool prints the list of failures and the summary, and returns the exit code as an error.
func (o *stageOptions) concludePool(cmd *cobra.Command, report *pool.Report, err error) error {
	failures := report.Failures()
	if o.failed != "" && len(failures) > 0 {
		if failed := os.WriteFile(o.failed, stage.FormatFailures(failures), 0o600); failed != nil {
			err = errors.Join(err, fmt.Errorf("--failed: %w", failed))
		} else {
			report.FailedList = o.failed
		}
	}
	if !o.quiet && (err == nil || o.json) {
		print := report.Print
		if o.json {
			print = func(w io.Writer) error { return json.NewEncoder(w).Encode(report) }
		}
		err = cmp.Or(err, print(cmd.OutOrStdout()))
	}
	if err != nil || len(failures) == 0 {
		return err
	}
	return fmt.Errorf("%d samples were not staged, the first is of %q: %s", len(failures),
		failures[0].Path, failures[0].Reason)
}
