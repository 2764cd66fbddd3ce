package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// The exit codes of every subcommand but run, which passes on the training command's. They stay below 64,
// because srun reports the highest code of all tasks and keeps 253 for "out of memory".
//
// Source: SchedMD, srun(1), RETURN VALUE.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitSignal = 128 // plus the number of the signal
)

const exitTable = `Exit codes:
  0      done
  1      an error; one sentence on stderr says which
  2      wrong usage
  128+n  ended by signal n
  "rankpool run" returns the training command's own code, of several tasks of Slurm srun's; 253 is never ours.`

// A statusError is an error that names the process's exit code. Without a cause nothing is printed.
type statusError struct {
	code  int
	cause error
}

func (e *statusError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.cause.Error()
}

func (e *statusError) Unwrap() error { return e.cause }

// usagef returns an error of wrong usage.
func usagef(format string, args ...any) error {
	return &statusError{code: exitUsage, cause: fmt.Errorf(format, args...)}
}

// A signalError is the cause of a context that a signal ended.
type signalError struct{ signal syscall.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.signal.String() }

// interruptible returns a context that SIGINT, SIGTERM, SIGHUP and more end, with a signalError as its cause.
// stop gives the signals back.
func interruptible(parent context.Context, more ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	notify(signals, append(more, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)...)
	go func() {
		select {
		case s := <-signals:
			cancel(signalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// notify relays those of the signals that the process was not started to ignore (nohup ignores SIGHUP).
func notify(to chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// exitCode returns the exit code that err stands for.
func exitCode(err error) int {
	var status *statusError
	var ended signalError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return status.code
	case errors.As(err, &ended):
		return exitSignal + int(ended.signal)
	}
	return exitError
}

// report prints err as one sentence to w, unless it is a bare exit status.
func report(w io.Writer, err error) {
	var status *statusError
	if err == nil || errors.As(err, &status) && status.cause == nil {
		return
	}
	fmt.Fprintln(w, "rankpool:", err)
}
