package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport"
	"rankpool/slurm"
	"rankpool/staging/stage"
)

const aboutStage = `Stage copies a data set, or part of it, to a folder on every node, in memory
(/dev/shm) or on NVMe. The job reads each file from storage once and spreads it over MPI to the
nodes that need it; every copy is written under a temporary name, read back, compared and renamed. A
second run copies only what is missing or has changed, and an interrupted run resumes where it
stopped. What failed is listed in a file in DEST, which --list can read.

Start it with srun or mpirun, one rank per node. By hand it is one process, which runs N ranks with
--ranks N.

Modes:
  partition  each rank gets its share, balanced by bytes
  replicate  each rank gets everything

DEST may contain {rank} and {host}. Copies keep their mode and modification time.`

// stageModes are the values of --mode.
var stageModes = []string{"partition", "replicate"}

// stageOptions are the flags of stage.
type stageOptions struct {
	copyOptions
	mode     string
	part     stagePart
	checksum bool
	limits   rank.StorageOptions
	prune    bool
}

func newStageCommand() *cobra.Command {
	var o stageOptions
	cmd := &cobra.Command{
		Use:   "stage --data SRC --dest DEST [flags]",
		Short: "Copy a data set to the memory or NVMe of the nodes",
		Long:  aboutStage + "\n\n" + exit.Table,
		Example: "  srun --ntasks-per-node=1 --mpi=pmix rankpool stage --data /lustre/imagenet " +
			"--dest /dev/shm/imagenet --mode replicate\n" +
			"  rankpool stage --data imagenet.parquet --dest /nvme/{rank} --ranks 4 --top 20% " +
			"--importance losses.npy",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := world.Find(os.Getenv)
			if err := o.check(at); err != nil {
				return at.OnlyFirst(err)
			}
			return o.stage(cmd, at)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "",
		"what to stage: a folder, a file, or a manifest (.parquet)")
	flags.StringVar(&o.dest, "dest", "", "destination folder of each rank; {rank} and {host} "+
		"stand for the rank's number and machine")
	flags.StringVar(&o.mode, "mode", string(stage.Partition),
		"which rank gets what: partition or replicate")
	o.part.register(flags)
	o.limits.RegisterLimits(flags)
	flags.BoolVar(&o.prune, "prune", false, "of a partition: remove the copies of earlier runs "+
		"from DEST that are not this rank's any more")
	o.register(flags)
	flags.BoolVar(&o.checksum, "checksum", false,
		"also read existing copies, and replace damaged ones")
	return cmd
}

// check validates the flags.
func (o *stageOptions) check(at world.Place) error {
	if err := o.copyOptions.check(at); err != nil {
		return err
	}
	if o.prune && o.mode != string(stage.Partition) {
		return exit.Usagef("--prune removes copies that are another rank's after a new " +
			"partition: use it with --mode partition")
	}
	return cmp.Or(rank.OneOf("--mode", o.mode, stageModes), o.part.check(), o.limits.Check())
}

// stage joins the other ranks, and stages; rank 0 reports for all.
func (o *stageOptions) stage(cmd *cobra.Command, at world.Place) error {
	ctx, stop := exit.Interruptible(cmd.Context())
	defer stop()
	if job := slurm.Detect(os.Getenv); at.Tasks == 0 && job.InJob() && job.Nodes > 1 {
		fmt.Fprintf(os.Stderr, "rankpool: this stages on one of the job's %d nodes: start it "+
			"with srun to stage on all\n", job.Nodes)
	}
	group, leave, err := o.join(at)
	if err != nil {
		return err
	}
	defer leave()
	// Goroutines wait for storage in system calls: with a place for each, Go's runtime need not hand
	// places over, which took half of the processors' time (20,000 files of 1 KB, 1 ms a call).
	runtime.GOMAXPROCS(max(runtime.GOMAXPROCS(0), stage.Requests*len(group)))
	reports, errs := make([]*stage.Report, len(group)), make([]error, len(group))
	var all sync.WaitGroup
	for i, transport := range group {
		all.Go(func() { reports[i], errs[i] = o.rank(ctx, transport) })
	}
	all.Wait()
	if err := o.silence(group[0].Rank(), reports[0], errs[0]); group[0].Rank() != 0 {
		return err
	}
	return o.conclude(cmd, reports[0], errs[0])
}

// rank runs the staging of one rank.
func (o *stageOptions) rank(ctx context.Context, ranks transport.Transport) (*stage.Report, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	rate, _ := o.limits.Rate() // checked before
	dest := strings.NewReplacer("{rank}", strconv.Itoa(ranks.Rank()), "{host}", host).Replace(o.dest)
	opt := stage.Options{
		Dest: filepath.Clean(dest), Mode: stage.Mode(o.mode), Host: host, Checksum: o.checksum,
		MaxBytesPerSecond: float64(rate), MaxOpensPerSecond: o.limits.MaxOpens, Prune: o.prune,
	}
	if ranks.Rank() == 0 {
		var last stage.Progress
		var found atomic.Int64 // items, by the walk
		show := progress.NewCopy(os.Stderr, o.quiet, "staging", func(seconds float64) string {
			return stagingLine(last, found.Load(), seconds)
		})
		defer show.End()
		opt.Progress = func(at stage.Progress) {
			last = at
			show.SetTotal(at.AllBytes)
			show.Update(at.Bytes)
		}
		opt.Plan = func(ctx context.Context) (*stage.Plan, error) {
			return o.part.plan(ctx, o.data, o.root, found.Store)
		}
	}
	return stage.Run(ctx, ranks, opt)
}

// silence returns the exit error of a rank other than 0, which prints nothing unless rank 0 is
// gone.
func (o *stageOptions) silence(rank int, report *stage.Report, err error) error {
	var silent *stage.SilentError
	var ended exit.SignalError
	switch {
	case errors.As(err, &silent) && silent.Rank == 0, errors.As(err, &ended):
		return fmt.Errorf("rank %d: %w", rank, err)
	case err != nil || report.Failed > 0:
		return &exit.StatusError{Code: exit.Failure}
	}
	return nil
}

// conclude runs on rank 0: it prints the list of failures and the summary, and returns the exit
// code as an error.
func (o *stageOptions) conclude(cmd *cobra.Command, report *stage.Report, err error) error {
	listed := o.listFailures(report)
	if !o.quiet && (err == nil || o.json) {
		print := printStaged
		if o.json {
			print = func(w io.Writer, r *stage.Report) error { return json.NewEncoder(w).Encode(r) }
		}
		if failed := print(cmd.OutOrStdout(), report); err == nil {
			err = failed
		}
	}
	if err != nil {
		if report.Failed > 0 && listed != "" {
			return fmt.Errorf("%w (%d items are not staged, see %s)", err, report.Failed, listed)
		}
		return err
	}
	if report.Failed == 0 {
		return nil
	}
	list := "the list of all could not be written"
	if listed != "" {
		list = "all are listed in " + listed
	}
	first := report.Failures[0]
	return fmt.Errorf("%d items were not staged, the first is %q, which %s; %s", report.Failed,
		first.Path, first.Reason, list)
}

// listFailures writes the list of failures and returns its name, or "" if nothing failed or it
// cannot be written.
func (o *stageOptions) listFailures(report *stage.Report) string {
	if len(report.Failures) == 0 {
		return ""
	}
	path := filepath.Join(report.Ranks[0].Dest, fmt.Sprintf(".rankpool-failed-%d", os.Getpid()))
	if err := os.WriteFile(path, stage.FormatFailures(report.Failures), 0o600); err != nil {
		fmt.Fprintf(os.Stderr, "rankpool: cannot write the list of failures: %v\n", err)
		return ""
	}
	report.FailedList = path
	return path
}

// printStaged prints the summary, then a line per rank.
func printStaged(w io.Writer, r *stage.Report) error {
	rate := ""
	if r.Seconds > 0 {
		rate = fmt.Sprintf(" (%s/s)", memory.Text(int64(float64(r.Bytes)/r.Seconds)))
	}
	fmt.Fprintf(w, "items:    %s (%s)\ncopied:   %s\nskipped:  %s\nfailed:   %s\nbytes:    %s%s\n"+
		"read:     %s files, %s\nseconds:  %.2f\n",
		humanize.Comma(r.TotalItems), memory.Text(r.TotalBytes), humanize.Comma(r.Copied),
		humanize.Comma(r.Skipped), humanize.Comma(r.Failed), memory.Text(r.Bytes), rate,
		humanize.Comma(r.StorageReads), memory.Text(r.StorageBytes), r.Seconds)
	if r.FailedList != "" {
		fmt.Fprintf(w, "list:     %s\n", r.FailedList)
	}
	if r.Stale > 0 {
		fmt.Fprintf(w, "stale:    %s, %s removed; such as %q\n", humanize.Comma(r.Stale),
			humanize.Comma(r.Pruned), r.StalePaths[0])
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rank\thost\titems\tbytes\tread\tdestination")
	for _, rank := range r.Ranks {
		if rank.Dead {
			fmt.Fprintf(table, "%d\tdead\t?\t?\t?\t?\n", rank.Rank)
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", rank.Rank, rank.Host,
			humanize.Comma(rank.Copied+rank.Skipped), memory.Text(rank.Bytes),
			memory.Text(rank.StorageBytes), rank.Dest)
	}
	return table.Flush()
}

// stagingLine is one progress line. found is how many items the walk has found.
func stagingLine(at stage.Progress, found int64, seconds float64) string {
	if at.AllItems == 0 {
		return fmt.Sprintf("found %s items in %.0f s", humanize.Comma(found), seconds)
	}
	return fmt.Sprintf("staged %s of %s items, %s", humanize.Comma(at.Items),
		humanize.Comma(at.AllItems), doneText(at.Bytes, at.AllBytes, seconds))
}
