package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/staging/dataset"
	"rankpool/staging/index"
	"rankpool/staging/storage"
)

// indexOptions are the flags of index.
type indexOptions struct {
	output      string
	verify      string
	choice      rank.Choice
	checksum    bool
	json, quiet bool
	pieces      pieceFlags
}

// indexReport is what index prints with --json.
type indexReport struct {
	Manifest   string  `json:"manifest"`
	Samples    int     `json:"samples"`
	Pieces     int     `json:"pieces,omitempty"` // of samples that are made of several
	Files      int     `json:"files"`
	Classes    int     `json:"classes"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	Unreadable int     `json:"unreadable"` // samples that --verify could not read
	// What has changed since the manifest was written; nil if there was none.
	Changes *changeCounts `json:"changes"`
}

type changeCounts struct {
	Added   int `json:"added"`
	Removed int `json:"removed"`
	Changed int `json:"changed"`
}

func (x *indexing) report(
	m *dataset.Manifest, path string, unreadable int, c *dataset.Changes,
) error {
	r := indexReport{
		Manifest: path, Samples: m.Samples(), Files: fileCount(m), Classes: len(m.Classes()),
		Bytes: m.TotalBytes(), Seconds: time.Since(x.begin).Seconds(), Unreadable: unreadable,
	}
	if m.Pieces() != nil {
		r.Pieces = m.Len()
	}
	if c != nil {
		r.Changes = &changeCounts{Added: c.Added, Removed: c.Removed, Changed: c.Changed}
	}
	return json.NewEncoder(x.out).Encode(r)
}

func fileCount(m *dataset.Manifest) int {
	files := 0
	for _, c := range m.Formats() {
		files += c.Files
	}
	return files
}

func newIndexCommand() *cobra.Command {
	var o indexOptions
	cmd := &cobra.Command{
		Use:   "index DIR {-o | --verify} MANIFEST",
		Short: "Index a data set into a manifest (Parquet), or compare it with one",
		Long: `Index walks the data set DIR (class folders with files, as for ImageFolder, or just
files) and writes its manifest, a Parquet file: the path, size, label and modification time of each
sample. "rankpool run --data MANIFEST" then starts without walking the folder.

Tar shards (.tar in WebDataset's format: members with the same path up to the first dot form one
sample) and TFRecord files (.tfrecord, .tfrec) may be mixed with plain files; their samples are read
in place. With --format files each such file is a single sample.

If MANIFEST exists, index prints what has changed in DIR since; it does not
overwrite a file that is not a manifest.

With --checksum, index reads every sample and stores its checksum (XXH3, 64 bits) in the manifest;
later reads are verified against it. Without checksums, a file whose content changed but whose size
and modification time did not goes unnoticed. With --verify, index writes nothing: it walks DIR
again, reads every sample, lists the differences from the manifest, and exits with code 1 if there
are any.

HDF5, NetCDF, Zarr, .npy, .npz, .mrc and kerchunk references, and raw arrays (--shape), are listed
by "python3 -m rankpool.pieces", beside the library that knows the format. Samples are windows of
--rows rows, and the cache holds the pieces of files that they are made of. Of a folder of files
this needs such a flag, unless it has nothing but .npy files; in class folders each of them is a
sample. --pieces reads a list.

Under mpirun or srun all ranks list and read, and rank 0 writes.`,
		Example: `  rankpool index /lustre/imagenet/train -o imagenet.parquet
  rankpool index era5.h5 --dataset t2m,u10 --rows 3 -o era5.parquet
  mpirun -n 4 rankpool index /lustre/imagenet/train -o imagenet.parquet --checksum
  rankpool index /lustre/imagenet/train --verify imagenet.parquet`,
		Args: o.pieces.args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.share(cmd, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.output, "output", "o", "", "the manifest to write")
	flags.StringVar(&o.verify, "verify", "",
		"the manifest to compare DIR with, by checksums; nothing is written")
	o.choice.Register(flags)
	flags.BoolVar(&o.checksum, "checksum", false, "read every sample and keep its checksum")
	o.pieces.register(flags)
	flags.BoolVar(&o.json, "json", false, "print the summary as one JSON object")
	flags.BoolVarP(&o.quiet, "quiet", "q", false,
		"print nothing but errors, and what --verify finds")
	return cmd
}

func (o *indexOptions) check() error {
	switch {
	case o.output == "" && o.verify == "":
		return exit.Usagef("where should the manifest go? name it with -o MANIFEST")
	case o.output != "" && o.verify != "":
		return exit.Usagef("--verify writes no manifest: leave -o or --verify out")
	}
	return o.choice.Check()
}

// share divides the work among the ranks that a launcher started: rank 0 runs the command, the
// others help it. The others exit with success even if it fails: otherwise mpirun would kill rank 0
// while it prints its error.
func (o *indexOptions) share(cmd *cobra.Command, args []string) (err error) {
	transport, err := world.Open()
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := transport.Close(); err == nil {
			err = closeErr
		}
	}()
	ctx, stop := exit.Interruptible(cmd.Context())
	defer stop()
	group := index.NewGroup(transport)
	if group.Rank() > 0 {
		group.Serve(ctx, nil)
		return nil
	}
	work := &indexing{
		indexOptions: o, dir: strings.Join(args, ""), out: cmd.OutOrStdout(), group: group,
		begin: time.Now(),
	}
	switch {
	case o.pieces.wanted(args, o.choice.Format == "files"):
		err = work.writePieces(ctx, cmd)
	case o.verify != "":
		err = work.compare(ctx)
	default:
		err = work.write(ctx)
	}
	group.Dismiss()
	return err
}

// indexing is the state of one index run on rank 0.
type indexing struct {
	*indexOptions
	dir    string
	out    io.Writer
	group  *index.Group
	begin  time.Time
	before *dataset.Manifest // the manifest to replace; nil if there is none
}

// write writes the manifest of the folder.
func (x *indexing) write(ctx context.Context) error {
	var err error
	if x.before, err = readOutput(x.output); err != nil {
		return err
	}
	m, scanned, err := x.index(ctx, nil)
	if err != nil {
		return err
	}
	return x.finish(m, time.Since(x.begin), scanned)
}

// readOutput returns the manifest at path, or nil if the file is missing or empty. It is an error
// if the file is not a manifest: it is not overwritten, since it may be irreplaceable.
func readOutput(path string) (*dataset.Manifest, error) {
	dir := filepath.Dir(path)
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return nil, fmt.Errorf("cannot write the manifest to %s: the folder %s: %w; name another file "+
			"with -o", path, dir, err)
	}
	info, err := os.Stat(path)
	switch {
	case err != nil, info.Mode().IsRegular() && info.Size() == 0:
		// Any other problem shows when the manifest is written.
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf(
			"cannot write the manifest to %s, which is not a file: name a file with -o", path)
	}
	m, err := dataset.ReadParquet(path)
	if err != nil {
		return nil, fmt.Errorf("%s is not overwritten, because it is not a manifest (%w): name "+
			"another file with -o, or remove this one", path, err)
	}
	return m, nil
}

// index scans the folder, and reads the samples for --checksum and --verify. scanned is the
// duration of the scan.
func (x *indexing) index(
	ctx context.Context, unreadable func(*storage.SampleError),
) (m *dataset.Manifest, scanned time.Duration, err error) {
	begin := time.Now()
	show := progress.NewScan(os.Stderr, x.quiet)
	options := x.choice.Scan(show.Update, noticer(show, x.quiet))
	options.Group = x.group
	m, err = index.Scan(ctx, x.dir, options)
	show.End()
	scanned = time.Since(begin)
	if err != nil || !x.checksum && x.verify == "" {
		return m, scanned, err
	}
	m, err = x.sums(ctx, m, unreadable)
	return m, scanned, err
}

// sums reads the samples, and returns the manifest with their checksums.
func (x *indexing) sums(
	ctx context.Context, m *dataset.Manifest, unreadable func(*storage.SampleError),
) (*dataset.Manifest, error) {
	reading := progress.NewRead(os.Stderr, x.quiet, m.TotalBytes())
	defer reading.End()
	return index.Checksums(ctx, m, index.ChecksumOptions{
		Progress: reading.Update, Group: x.group, Unreadable: unreadable,
	})
}

// noticer returns a function that prints a sentence in place of a scan's bar; nil if quiet.
func noticer(show *progress.Counter, quiet bool) func(sentence string) {
	if quiet {
		return nil
	}
	return func(sentence string) {
		show.End()
		messages.Say("%s", sentence)
	}
}

// finish writes the manifest and prints what it holds, and how it differs from the previous one.
func (x *indexing) finish(m *dataset.Manifest, took, scanned time.Duration) error {
	var changes *dataset.Changes
	if x.before != nil && (x.json || !x.quiet) && x.before.Root() == m.Root() {
		changes = dataset.Compare(x.before, m, 5)
	}
	if err := dataset.WriteParquet(x.output, m); err != nil {
		return err
	}
	switch {
	case x.json:
		return x.report(m, x.output, 0, changes)
	case x.quiet:
		return nil
	}
	out := bufio.NewWriter(x.out)
	x.printSummary(out, m, took, scanned)
	switch {
	case changes == nil:
	case changes.Any():
		fmt.Fprintf(out, "changes:  %s\n", changes)
		printChanges(out, changes)
	default:
		fmt.Fprintln(out, "changes:  none since the manifest was written before")
	}
	return out.Flush()
}

func (x *indexing) printSummary(
	out *bufio.Writer, m *dataset.Manifest, took, scanned time.Duration,
) {
	files, unit := fileCount(m), "files"
	fmt.Fprintf(out, "files:    %s\n", humanize.Comma(int64(files)))
	if p := m.Pieces(); p != nil {
		unit = "pieces"
		fmt.Fprintf(out, "samples:  %s\npieces:   %s\n", humanize.Comma(int64(p.Samples)),
			humanize.Comma(int64(m.Len())))
	} else if m.Len() != files {
		unit = "samples"
		fmt.Fprintf(out, "samples:  %s\n", humanize.Comma(int64(m.Len())))
		for _, c := range m.Formats() {
			fmt.Fprintf(out, "  %-8s %s in %s\n", c.Format,
				english.Plural(c.Samples, "sample", ""), english.Plural(c.Files, "file", ""))
		}
	}
	fmt.Fprintf(out, "classes:  %s\nbytes:    %s (%s)\nseconds:  %.2f (%s %s/s)\n",
		humanize.Comma(int64(len(m.Classes()))), humanize.Comma(m.TotalBytes()),
		memory.Text(m.TotalBytes()), took.Seconds(),
		humanize.Comma(int64(float64(m.Len())/scanned.Seconds())), unit)
	if x.checksum {
		rate := float64(m.TotalBytes()) / max(took-scanned, time.Microsecond).Seconds()
		fmt.Fprintf(out, "checksum: every sample was read in %.2f s (%s/s)\n",
			(took - scanned).Seconds(), memory.Text(int64(rate)))
	}
	if x.group.Size() > 1 {
		fmt.Fprintf(out, "ranks:    %d\n", x.group.Size())
	}
	fmt.Fprintf(out, "manifest: %s\n", x.output)
}

// printChanges prints the names of changed samples, one per line.
func printChanges(out *bufio.Writer, c *dataset.Changes) {
	for _, list := range []struct {
		what  string
		names []string
		count int
	}{
		{"added", c.AddedNames, c.Added},
		{"removed", c.RemovedNames, c.Removed},
		{"changed", c.ChangedNames, c.Changed},
	} {
		for _, name := range list.names {
			fmt.Fprintf(out, "  %-8s %s\n", list.what, name)
		}
		if more := list.count - len(list.names); more > 0 {
			fmt.Fprintf(out, "  %-8s … and %s more\n", list.what, humanize.Comma(int64(more)))
		}
	}
}

// compare compares the folder with the manifest.
func (x *indexing) compare(ctx context.Context) error {
	before, err := dataset.ReadParquet(x.verify)
	if err != nil {
		return err
	}
	if !before.HasChecksums() {
		return fmt.Errorf("manifest %s has no checksums to verify: write it again with --checksum",
			x.verify)
	}
	unreadable := 0
	now, _, err := x.index(ctx, func(err *storage.SampleError) {
		unreadable++
		if !x.json {
			fmt.Fprintln(x.out, err)
		}
	})
	if err != nil {
		return err
	}
	changes := dataset.Compare(before, now, math.MaxInt)
	out := bufio.NewWriter(x.out)
	if x.json {
		err = x.report(now, x.verify, unreadable, changes)
	} else {
		printChanges(out, changes)
		err = out.Flush()
	}
	if err != nil {
		return err
	}
	switch {
	case changes.Any() || unreadable > 0:
		return fmt.Errorf("%s differs from manifest %s: %s, %d unreadable", x.dir, x.verify,
			changes, unreadable)
	case x.quiet || x.json:
		return nil
	}
	_, err = fmt.Fprintf(x.out, "verified: %s samples, %s\n", humanize.Comma(int64(now.Len())),
		memory.Text(now.TotalBytes()))
	return err
}
