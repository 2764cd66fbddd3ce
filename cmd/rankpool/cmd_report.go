package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	page "rankpool/cmd/internal/report"
	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/summary"
)

func newReportCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report RUN.jsonl [MORE.jsonl…] -o REPORT.html",
		Short: "Turn a run log into a page with plots",
		Long: `Report turns run logs, which "rankpool run --log FILE" writes, into one HTML page:
what happened in plain words, where samples came from, how long training waited and for what, and
what GPUs and nodes did. The page is self-contained and needs no network, in a browser or on paper.

Several logs are read as parts of one training, in order of time, as from a job that was requeued.
From a log of several trainings, report shows the last one. From a log that is still being written,
it shows what has been logged so far.

"rankpool-lab side-by-side" compares the logs of several trainings.`,
		Example: "  rankpool run --data images/ --log run.jsonl -- python train.py\n" +
			"  rankpool report run.jsonl -o report.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("which run log? name the file that --log of run or serve "+
					"wrote; see \"%s --help\"", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return exit.Usagef("where should the page go? name it with -o REPORT.html, or -o - for stdout")
			}
			return report(args, output, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the page to write; -: stdout")
	return cmd
}

// report writes a page about the logs as one training.
func report(paths []string, output string, stdout io.Writer) error {
	if err := checkOutput(paths, output); err != nil {
		return err
	}
	run, err := runlog.ReadFiles(paths...)
	if err == nil && run.Events == 0 {
		err = errors.New("the files contain no event of a run: name a file that --log of " +
			"\"rankpool run\" has written")
	}
	if err != nil {
		return err
	}
	options := page.Options{Version: version.Text, Bound: summary.Bound}
	for _, path := range paths {
		options.Names = append(options.Names, filepath.Base(path))
	}
	var text bytes.Buffer
	if err := page.Write(&text, run, options); err != nil {
		return err
	}
	return writePage(output, stdout, text.Bytes())
}

// checkOutput returns an error if the page would overwrite one of the logs.
func checkOutput(paths []string, output string) error {
	page, err := os.Stat(output)
	for _, path := range paths {
		if log, logErr := os.Stat(path); err == nil && logErr == nil && page.Mode().IsRegular() &&
			os.SameFile(page, log) {
			return exit.Usagef("-o %s is the log itself: name another file for the page", output)
		}
	}
	return nil
}

// writePage writes a page to a file, which is complete or does not exist. "-" is stdout, and
// anything but a regular file, such as /dev/stdout, is written directly.
func writePage(path string, stdout io.Writer, page []byte) error {
	if path == "-" {
		_, err := stdout.Write(page)
		return err
	}
	var err error
	if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
		err = os.WriteFile(path, page, 0o666)
	} else {
		err = renameio.WriteFile(path, page, 0o644)
	}
	if err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}
