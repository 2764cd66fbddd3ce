package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	page "rankpool/cmd/internal/report"
	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/progress"
	"rankpool/cmd/rankpool/internal/summary"
)

// reportOptions are the flags of report.
type reportOptions struct {
	output     string
	quiet      bool
	sideBySide bool
}

func newReportCommand() *cobra.Command {
	var o reportOptions
	cmd := &cobra.Command{
		Use:   "report RUN.jsonl [MORE.jsonl…] -o REPORT.html",
		Short: "Turn a run log into a page with plots",
		Long: `Report turns run logs, which "rankpool run --log FILE" writes, into one HTML page:
what happened in plain words, where samples came from, how long training waited and for what, and
what GPUs and nodes did. The page is self-contained and needs no network, in a browser or on paper.

Several logs are read as parts of one training, in order of time, as from a job that was requeued.
From a log of several trainings, report shows the last one. From a log that is still being written,
it shows what has been logged so far.

With --side-by-side each log is a separate training, and the page compares them. NAME=LOG names a
training; logs with the same name are the same training with several seeds. "rankpool-lab compare"
runs the trainings and compares them.`,
		Example: "  rankpool run --data images/ --log run.jsonl -- python train.py\n" +
			"  rankpool report run.jsonl -o report.html\n" +
			"  rankpool report --side-by-side lru=a.jsonl shade=b.jsonl -o both.html",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("which run log? name the file that --log of run or serve "+
					"wrote; see \"%s --help\"", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == "" {
				return exit.Usagef("where should the page go? name it with -o REPORT.html, or -o - for stdout")
			}
			if o.sideBySide {
				return o.compare(args, cmd.OutOrStdout())
			}
			return o.report(args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.output, "output", "o", "", "the page to write; -: stdout")
	flags.BoolVar(&o.sideBySide, "side-by-side", false,
		"compare the logs: [NAME=]RUN.jsonl, each a training")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// report writes a page about the logs as one training.
func (o *reportOptions) report(paths []string, stdout io.Writer) error {
	if err := o.checkOutput(paths); err != nil {
		return err
	}
	run, err := readRunLogs(paths, o.quiet)
	if err != nil {
		return err
	}
	options := page.Options{Version: version.Text, Bound: summary.Bound}
	for _, path := range paths {
		options.Names = append(options.Names, filepath.Base(path))
	}
	return o.write(stdout, func(w io.Writer) error { return page.Write(w, run, options) })
}

// checkOutput returns an error if the page would overwrite one of the logs.
func (o *reportOptions) checkOutput(paths []string) error {
	page, err := os.Stat(o.output)
	for _, path := range paths {
		if log, logErr := os.Stat(path); err == nil && logErr == nil && page.Mode().IsRegular() &&
			os.SameFile(page, log) {
			return exit.Usagef("-o %s is the log itself: name another file for the page",
				o.output)
		}
	}
	return nil
}

// compare writes a page that shows the logs side by side.
func (o *reportOptions) compare(args []string, stdout io.Writer) error {
	c := page.Comparison{Title: "Trainings side by side"}
	var paths []string
	for _, arg := range args {
		name, path, named := strings.Cut(arg, "=")
		if _, err := os.Stat(arg); err == nil || !named { // the file's name may have the sign
			name, path = strings.TrimSuffix(filepath.Base(arg), ".jsonl"), arg
		}
		paths = append(paths, path)
		run, err := runlog.ReadFile(path)
		if err != nil {
			return err
		}
		if len(run.Epochs) == 0 {
			return fmt.Errorf("%s: it contains no training epoch to compare", path)
		}
		i := slices.IndexFunc(c.Sides, func(s page.Side) bool { return s.Name == name })
		if i < 0 {
			i, c.Sides = len(c.Sides), append(c.Sides, page.Side{Name: name})
		}
		c.Sides[i].Runs = append(c.Sides[i].Runs, page.NewSideRun(run, nil))
	}
	if err := o.checkOutput(paths); err != nil {
		return err
	}
	return o.write(stdout, func(w io.Writer) error { return c.Write(w, version.Text) })
}

// readRunLogs reads logs as one run, and shows its progress.
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
		return nil, errors.New("the files contain no event of a run: name a " +
			"file that --log of \"rankpool run\" has written")
	}
	return run, nil
}

// A watchedReader reports how many bytes have been read.
type watchedReader struct {
	io.Reader
	watch func(n int)
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.watch(n)
	return n, err
}

// write writes the page to the output. A file is written atomically: it is complete or does not
// exist. Anything but a regular file, such as /dev/stdout, is written directly.
func (o *reportOptions) write(stdout io.Writer, page func(io.Writer) error) (err error) {
	if o.output == "-" {
		return page(stdout)
	}
	var f *os.File
	if info, statErr := os.Stat(o.output); statErr == nil && !info.Mode().IsRegular() {
		f, err = os.OpenFile(o.output, os.O_WRONLY, 0)
	} else if f, err = os.OpenFile(o.output+".partial", os.O_CREATE|os.O_WRONLY|os.O_TRUNC,
		0o644); err == nil {
		defer func() {
			if err == nil {
				err = os.Rename(f.Name(), o.output)
			}
			if err != nil {
				_ = os.Remove(f.Name()) // the earlier error is returned
			}
		}()
	}
	if err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	to := bufio.NewWriter(f)
	if err = page(to); err == nil {
		err = to.Flush()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("the page cannot be written: %w", err)
	}
	return nil
}
