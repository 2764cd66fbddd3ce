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
stopped.

Start it with srun or mpirun, one rank per node. By hand it is one process, which runs N ranks with
--ranks N.

Modes:
  partition  each rank gets its share, balanced by bytes
  replicate  each rank gets everything

DEST may contain {rank} and {host}. Copies keep their mode and modification time.`

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
		Long:  aboutStage,
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
	if o.part.list != "" && len(o.choice.Only) > 0 {
		return exit.Usagef("--list and --only name different parts: give one of them")
	}
	return cmp.Or(rank.OneOf("--mode", o.mode, []string{"partition", "replicate"}),
		o.part.check(), o.limits.Check())
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
	var others sync.WaitGroup
	for _, transport := range group[1:] {
		others.Go(func() { _, _ = o.rank(ctx, transport) }) // the first one's report is of all
	}
	report, err := o.rank(ctx, group[0])
	others.Wait()
	if group[0].Rank() == 0 {
		return o.conclude(cmd, report, err)
	}
	// Rank 0 reports for all, unless it is gone. The others exit with success, because mpirun would
	// kill rank 0 while it prints its error.
	var silent *stage.SilentError
	var ended exit.SignalError
	if errors.As(err, &silent) && silent.Rank == 0 || errors.As(err, &ended) {
		return fmt.Errorf("rank %d: %w", group[0].Rank(), err)
	}
	return nil
}

// rank runs the staging of one rank.
func (o *stageOptions) rank(ctx context.Context, ranks transport.Transport) (*stage.Report, error) {
	host, _ := os.Hostname()
	host = cmp.Or(host, "localhost")
	rate, _ := o.limits.Rate() // checked before
	dest := strings.NewReplacer("{rank}", strconv.Itoa(ranks.Rank()), "{host}", host).Replace(o.dest)
	opt := stage.Options{
		Dest: filepath.Clean(dest), Mode: stage.Mode(o.mode), Host: host, Checksum: o.checksum,
		MaxBytesPerSecond: float64(rate), MaxOpensPerSecond: o.limits.MaxOpens, Prune: o.prune,
	}
	if ranks.Rank() == 0 {
		var found, done, total atomic.Int64 // items, by the walk; bytes
		show := progress.NewCopy(os.Stderr, o.still(), "staging", func(seconds float64) string {
			if total.Load() == 0 {
				return fmt.Sprintf("found %s items in %.0f s", humanize.Comma(found.Load()), seconds)
			}
			return "staged " + doneText(done.Load(), total.Load(), seconds)
		})
		defer show.End()
		opt.Progress = func(bytes, all int64) {
			done.Store(bytes)
			total.Store(all)
			show.SetTotal(all)
			show.Update(bytes)
		}
		opt.Plan = func(ctx context.Context) (*stage.Plan, error) {
			return o.part.plan(ctx, o.data, found.Store,
				o.choice.Scan(found.Store, noticer(show, o.quiet)))
		}
	}
	return stage.Run(ctx, ranks, opt)
}

// conclude runs on rank 0: it prints what failed and the summary, and returns the exit code as an
// error.
func (o *stageOptions) conclude(cmd *cobra.Command, report *stage.Report, err error) error {
	if err != nil {
		return err
	}
	for _, f := range report.Failures {
		fmt.Fprintf(os.Stderr, "rankpool: rank %d: %q %s\n", f.Rank, f.Path, f.Reason)
	}
	switch {
	case o.json:
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(report)
	case !o.quiet:
		err = printStaged(cmd.OutOrStdout(), report)
	}
	if err != nil || report.Failed == 0 {
		return err
	}
	return fmt.Errorf("%d items were not staged; the same command again copies the rest",
		report.Failed)
}

// printStaged prints the summary, then a line per rank.
func printStaged(w io.Writer, r *stage.Report) error {
	fmt.Fprintf(w, "items:    %s (%s)\ncopied:   %s\nskipped:  %s\nfailed:   %s\n"+
		"bytes:    %s (%s/s)\nread:     %s files, %s\nseconds:  %.2f\n",
		humanize.Comma(r.TotalItems), memory.Text(r.TotalBytes), humanize.Comma(r.Copied),
		humanize.Comma(r.Skipped), humanize.Comma(r.Failed), memory.Text(r.Bytes),
		memory.Text(int64(float64(r.Bytes)/max(r.Seconds, 1e-3))), humanize.Comma(r.StorageReads),
		memory.Text(r.StorageBytes), r.Seconds)
	if r.Stale > 0 {
		fmt.Fprintf(w, "stale:    %s, %s removed; such as %q\n", humanize.Comma(r.Stale),
			humanize.Comma(r.Pruned), r.StalePaths[0])
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "rank\thost\titems\tbytes\tread\tdestination")
	for _, rank := range r.Ranks {
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n", rank.Rank, rank.Host,
			humanize.Comma(rank.Copied+rank.Skipped), memory.Text(rank.Bytes),
			memory.Text(rank.StorageBytes), rank.Dest)
	}
	return table.Flush()
}
