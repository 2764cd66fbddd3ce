package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/pack"
	"rankpool/staging/sizes"
)

const aboutPack = `Pack writes a data set as tar shards (pack-000000.tar, …) and a manifest
(rankpool.parquet) into DEST, a folder visible to all ranks. Samples are ordered by importance, at
random, or as in the manifest, so that the next job reads the pack from the front in a few long
reads.

Samples are named 000000000, 000000001, … in packed order, which is also their ids; members keep
their extensions, and the label of a class is a .cls member, as in WebDataset. "rankpool run --data
DEST" opens the pack.

Each shard is written under a temporary name, read back, compared and renamed. The manifest is
written last: a pack that has one is complete. Running pack again with the same flags keeps existing
shards and writes the missing ones.

Under srun or mpirun all ranks read and write, and rank 0 writes the manifest.`

// packOptions are the flags of pack.
type packOptions struct {
	copyOptions
	order, importance string
	seed              uint64
	shardSize         string

	shardBytes int64
}

func newPackCommand() *cobra.Command {
	var o packOptions
	cmd := &cobra.Command{
		Use:   "pack --data SRC --dest DEST [flags]",
		Short: "Write a data set as tar shards, the most important samples first",
		Long:  aboutPack,
		Example: "  srun --ntasks-per-node=1 --mpi=pmix rankpool pack --data " +
			"/lustre/imagenet/train --dest /lustre/imagenet-packed --order random\n" +
			"  rankpool pack --data imagenet.parquet --dest packed --importance losses.npy " +
			"--shard-size 1GiB",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := world.Find(os.Getenv)
			if err := o.check(at); err != nil {
				return at.OnlyFirst(err)
			}
			return o.pack(cmd.Context(), at, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.data, "data", "", "what to pack: a folder, or a manifest (.parquet)")
	o.register(flags)
	flags.StringVar(&o.dest, "dest", "",
		"destination: a new folder, or one with an unfinished pack")
	flags.StringVar(&o.order, "order", "", "the order of the samples: importance, random or "+
		"manifest (default importance with --importance, else manifest)")
	flags.StringVar(&o.importance, "importance", "",
		"the samples' importance: a .npy file, or one number a line, in the order of the manifest")
	flags.Uint64Var(&o.seed, "seed", 0, "seed of --order random")
	flags.StringVar(&o.shardSize, "shard-size", memory.Text(pack.DefaultShardBytes),
		"maximum size of a shard")
	return cmd
}

// check validates the flags.
func (o *packOptions) check(at world.Place) (err error) {
	if o.order == "" {
		o.order = "manifest"
		if o.importance != "" {
			o.order = "importance"
		}
	}
	if err := cmp.Or(o.copyOptions.check(at),
		rank.OneOf("--order", o.order, []string{"importance", "random", "manifest"})); err != nil {
		return err
	}
	if (o.order == "importance") != (o.importance != "") {
		return exit.Usagef("--order importance and --importance need each other, as in: --order " +
			"importance --importance losses.npy")
	}
	if o.shardBytes, err = sizes.Parse(o.shardSize); err != nil || o.shardBytes == 0 {
		return exit.Usagef("--shard-size must be a size such as 256MiB or 1GiB, not %q",
			o.shardSize)
	}
	return nil
}

// pack joins the other ranks, and packs; rank 0 reports for all. The others exit with success in
// any case, because mpirun would kill rank 0 while it prints its error.
func (o *packOptions) pack(ctx context.Context, at world.Place, out io.Writer) error {
	ctx, stop := exit.Interruptible(ctx)
	defer stop()
	transports, leave, err := o.join(at)
	if err != nil {
		return err
	}
	defer leave()
	var others sync.WaitGroup
	defer others.Wait()
	var first *index.Group
	for _, transport := range transports {
		group := index.NewGroup(transport)
		if group.Rank() == 0 {
			first = group
			continue
		}
		others.Go(func() { pack.Serve(ctx, group) })
	}
	if transports[0].Rank() > 0 {
		return nil
	}
	defer first.Dismiss()
	report, err := o.lead(ctx, first)
	if err != nil || o.quiet && !o.json {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(report)
	}
	return o.print(out, report)
}

// lead is rank 0's part.
func (o *packOptions) lead(ctx context.Context, group *index.Group) (*pack.Report, error) {
	m, err := o.open(ctx, group)
	if err != nil {
		return nil, err
	}
	order, err := o.ids(m)
	if err != nil {
		return nil, err
	}
	var last pack.Progress
	show := progress.NewCopy(os.Stderr, o.still(), "packing", func(seconds float64) string {
		return fmt.Sprintf("packed %d of %s, %s", last.Shards,
			english.Plural(last.AllShards, "shard", ""),
			doneText(last.Bytes, last.AllBytes, seconds))
	})
	defer show.End()
	return pack.Run(ctx, m, pack.Options{
		Dest: o.dest, Order: order, ShardBytes: o.shardBytes, Group: group,
		Progress: func(at pack.Progress) {
			last = at
			show.SetTotal(at.AllBytes)
			show.Update(at.Bytes)
		},
	})
}

// open opens the data set. A folder is always scanned: all of it will be read, so a cached manifest
// would save little.
func (o *packOptions) open(ctx context.Context, group *index.Group) (*dataset.Manifest, error) {
	splits, err := index.Splits(o.data)
	if err != nil {
		return nil, err
	}
	if len(splits) > 0 {
		return nil, fmt.Errorf("%s holds the data sets %s: pack one at a time, as in --data %s",
			o.data, strings.Join(splits, ", "), filepath.Join(o.data, splits[0]))
	}
	show := progress.NewScan(os.Stderr, o.still())
	defer show.End()
	options := o.choice.Scan(show.Update, noticer(show, o.quiet))
	options.Group = group
	return openWhole(ctx, o.data, index.OpenOptions{ScanOptions: options, NoCache: true})
}

// ids returns the samples in packing order.
func (o *packOptions) ids(m *dataset.Manifest) ([]draw.SampleID, error) {
	switch o.order {
	case "random":
		return pack.Shuffled(m.Len(), o.seed), nil
	case "manifest":
		return nil, nil
	}
	scores, err := importanceOf(m, o.importance)
	if err != nil {
		return nil, err
	}
	return pack.ByImportance(scores), nil
}

// print prints the summary.
func (o *packOptions) print(w io.Writer, r *pack.Report) error {
	_, err := fmt.Fprintf(w, "samples:  %s (%s)\norder:    %s\nshards:   %s\n"+
		"packed:   %s, %s (%s/s)\n"+
		"kept:     %s, %s\nseconds:  %.2f\n",
		humanize.Comma(int64(r.Samples)), memory.Text(r.SampleBytes), o.order,
		humanize.Comma(int64(r.Shards)), english.Plural(r.Packed, "shard", ""), memory.Text(r.Bytes),
		memory.Text(int64(float64(r.Bytes)/max(r.Seconds, 1e-3))),
		english.Plural(r.Kept, "shard", ""), memory.Text(r.KeptBytes), r.Seconds)
	if err == nil && r.Ranks > 1 {
		_, err = fmt.Fprintf(w, "ranks:    %d\n", r.Ranks)
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "manifest: %s\n", r.Manifest)
	}
	return err
}
