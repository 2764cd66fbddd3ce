package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/staging"
)

func newIndexCommand() *cobra.Command {
	var output string
	var quiet bool
	cmd := &cobra.Command{
		Use:   "index DIR -o MANIFEST",
		Short: "Index a data set into a manifest (Parquet)",
		Long: `Index walks the data set DIR (class folders with files, as ImageFolder has them, or files only) and writes
its manifest, a Parquet file: for each sample its path, size, label and modification time.
"rankpool run --data MANIFEST" then starts without a walk.`,
		Example: "  rankpool index /lustre/imagenet/train -o imagenet.parquet",
		Args:    exactly(1, "one folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return usagef("where should the manifest go? name it with -o MANIFEST")
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			begin := time.Now()
			show := newScanProgress(os.Stderr, quiet)
			m, err := staging.Scan(ctx, args[0], staging.ScanOptions{Progress: show.update})
			show.end()
			if err != nil {
				return err
			}
			if err := staging.WriteParquet(output, m); err != nil {
				return err
			}
			if quiet {
				return nil
			}
			return printIndexSummary(cmd.OutOrStdout(), m, output, time.Since(begin))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the manifest to write")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing but errors")
	return cmd
}

func printIndexSummary(w io.Writer, m *staging.Manifest, output string, took time.Duration) error {
	_, err := fmt.Fprintf(w, "files:    %s\nclasses:  %s\nbytes:    %s (%s)\nseconds:  %.2f (%s files/s)\nmanifest: %s\n",
		humanize.Comma(int64(m.Len())), humanize.Comma(int64(len(m.Classes()))),
		humanize.Comma(m.TotalBytes()), humanize.IBytes(uint64(m.TotalBytes())),
		took.Seconds(), humanize.Comma(int64(float64(m.Len())/took.Seconds())), output)
	return err
}
