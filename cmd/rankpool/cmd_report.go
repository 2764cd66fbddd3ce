package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/progress"
	page "rankpool/cmd/rankpool/internal/report"
	"rankpool/cmd/rankpool/internal/runlog"
	"rankpool/cmd/rankpool/internal/summary"
	"rankpool/cmd/rankpool/internal/version"
)

// reportOptions are the flags of report.
type reportOptions struct {
	output string
	quiet  bool
}

func newReportCommand() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report RUN.jsonl [MORE.jsonl…] -o REPORT.html",
		Short: "Make a page with plots of a run log",
		Long: `Report reads run logs, which "rankpool run --log FILE" writes, and makes one HTML page of them: what happened in plain
words, where samples came from, how long training waited and for what, what GPUs and nodes did. The page needs no network
and nothing beside it, in a browser or on paper.

Several logs are parts of one training, in order of time: those of a job that was requeued. A log that has several
trainings in it gives a page of the last one. A log that is still written gives a page of what is there.`,
		Example: "  rankpool run --data images/ --log run.jsonl -- python train.py\n" +
			"  rankpool report run.jsonl -o report.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("which run log? name the file that --log of run or serve wrote; see \"%s --help\"", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == "" {
				return exit.Usagef("where should the page go? name it with -o REPORT.html, or -o - for stdout")
			}
			return o.report(args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.output, "output", "o", "", "the page to write; -: stdout")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	return cmd
}

func (o *reportOptions) report(paths []string, stdout io.Writer) error {
	page, err := os.Stat(o.output)
	for _, path := range paths {
		if log, logErr := os.Stat(path); err == nil && logErr == nil && page.Mode().IsRegular() && os.SameFile(page, log) {
			return exit.Usagef("-o %s is the log itself: the page needs a name of its own", o.output)
		}
	}
	return o.write(paths, stdout)
}

// write reads the logs and writes the page.
func (o *reportOptions) write(paths []string, stdout io.Writer) error {
	run, err := readRunLogs(paths, o.quiet)
	if err != nil {
		return err
	}
	options := page.Options{Version: version.Text, Bound: summary.Bound}
	for _, path := range paths {
		options.Names = append(options.Names, filepath.Base(path))
	}
	if o.output == "-" {
		return page.Write(stdout, run, options)
	}
	return writeWhole(o.output, func(w io.Writer) error { return page.Write(w, run, options) })
}

// readRunLogs reads logs as one run, and shows how far it is.
func readRunLogs(paths []string, quiet bool) (*runlog.Run, error) {
	total := int64(0)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("the run log cannot be read: %w", err)
		}
		total += info.Size()
	}
	progress := progress.NewRead(os.Stderr, quiet, total)
	defer progress.End()
	var builder runlog.Builder
	read := int64(0)
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("the run log cannot be read: %w", err)
		}
		builder.NextFile()
		broken, err := runlog.Read(watchedReader{f, func(n int) {
			read += int64(n)
			progress.Update(read)
		}}, builder.Add)
		f.Close()
		builder.AddBroken(broken)
		if err != nil {
			return nil, fmt.Errorf("run log %s cannot be read: %w", path, err)
		}
	}
	run := builder.Run()
	if run.Events == 0 {
		return nil, errors.New("there is no event of a run in what should be run logs: name a file that --log of \"rankpool run\" has written")
	}
	return run, nil
}

// A watchedReader tells how many bytes are read.
type watchedReader struct {
	io.Reader
	watch func(n int)
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.watch(n)
	return n, err
}

// writeWhole writes a file so that it is there whole or not at all. What is not a file, as /dev/stdout, is written to.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	var f *os.File
	if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
		f, err = os.OpenFile(path, os.O_WRONLY, 0)
	} else if f, err = os.OpenFile(path+".partial", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644); err == nil {
		defer func() {
			if err == nil {
				err = os.Rename(f.Name(), path)
			}
			if err != nil {
				_ = os.Remove(f.Name()) // what went wrong before is told
			}
		}()
	}
	if err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	to := bufio.NewWriter(f)
	if err = write(to); err == nil {
		err = to.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}
