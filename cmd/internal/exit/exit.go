// Package exit has the exit codes of every subcommand, the errors that carry them, and the signals
// that end one.
package exit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The exit codes of every subcommand but run, which passes on the training command's. They stay
// below 64, because srun reports the highest code of all tasks and uses 253 for "out of memory".
//
// Source: SchedMD, srun(1), RETURN VALUE.
const (
	OK       = 0
	Failure  = 1
	Misuse   = 2
	BySignal = 128 // plus the number of the signal
)

// Patience is how long a process that was asked to end may take before it is killed.
//
// Source: a third of Slurm's KillWait (30 s by default), which bounds the whole end of a job.
const Patience = 10 * time.Second

// Codes explains the exit codes in help texts.
const Codes = `Exit codes:
  0      done
  1      an error; one sentence on stderr says which
  2      wrong usage
  128+n  ended by signal n`

// Table explains the exit codes in help texts of rankpool.
const Table = Codes + `
  "rankpool run" returns the training command's own code, or srun's where Slurm runs several tasks.
  rankpool itself never returns 253.`

// A StatusError is an error that names the process's exit code. Without a cause nothing is printed.
type StatusError struct {
	Code  int
	Cause error
}

func (e *StatusError) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

func (e *StatusError) Unwrap() error { return e.Cause }

// Usagef returns an error of wrong usage.
func Usagef(format string, args ...any) error {
	return &StatusError{Code: Misuse, Cause: fmt.Errorf(format, args...)}
}

// NoCommand returns the error of a subcommand that lacks the training command, with an example.
func NoCommand(example string) error {
	return Usagef("which training command? give it after --, as in: %s", example)
}

// NoData returns the error of a subcommand that lacks the data set.
func NoData() error {
	return Usagef("no data set: name one with --data DIR or --data MANIFEST")
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal syscall.Signal }

func (e SignalError) Error() string { return "ended by signal: " + e.Signal.String() }

// Interruptible returns a context that SIGINT, SIGTERM, SIGHUP and more end, with a SignalError as
// its cause. stop gives the signals back.
func Interruptible(parent context.Context, more ...os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	Notify(signals, append(more, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)...)
	go func() {
		select {
		case s := <-signals:
			cancel(SignalError{s.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// Notify relays the signals, except those that the process was started to ignore (nohup ignores
// SIGHUP).
func Notify(to chan<- os.Signal, signals ...os.Signal) {
	for _, s := range signals {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// Code returns the exit code for err.
func Code(err error) int {
	var status *StatusError
	var ended SignalError
	switch {
	case err == nil:
		return OK
	case errors.As(err, &status):
		return status.Code
	case errors.As(err, &ended):
		return BySignal + int(ended.Signal)
	}
	return Failure
}

// Speaks reports whether err has something to say: a bare exit status has not.
func Speaks(err error) bool {
	var status *StatusError
	return err != nil && (!errors.As(err, &status) || status.Cause != nil)
}

// EndsRun reports whether s is a signal that ends a run.
func EndsRun(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP
}
