package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrNoEndTime means that the job has no known end: there is no job, or its time is unlimited.
var ErrNoEndTime = errors.New("slurm: the end of the job is unknown")

// A Runner runs a command until it ends or the context does, and returns what it wrote to its
// standard output.
type Runner func(ctx context.Context, name string, args ...string) (string, error)

// squeueTimeout bounds the wait for the controller, which answers within milliseconds or, under
// load, only after minutes.
const squeueTimeout = 5 * time.Second

// EndTime returns when Slurm will end the job, from SLURM_JOB_END_TIME (Slurm 22.05 and later),
// else from squeue, within 5 s. Only squeue knows of a time limit that was changed after the job
// began. local is the node's time zone (time.Local), which squeue uses. The error is ErrNoEndTime,
// or wraps squeue's failure.
func EndTime(ctx context.Context, getenv func(string) string, run Runner, local *time.Location) (
	time.Time, error,
) {
	if seconds, err := strconv.ParseInt(getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil &&
		seconds > 0 && seconds < 1<<32-2 {
		return time.Unix(seconds, 0), nil
	}
	job := jobID(getenv)
	if job == "" {
		return time.Time{}, ErrNoEndTime
	}
	ctx, cancel := context.WithTimeout(ctx, squeueTimeout)
	defer cancel()
	out, err := run(ctx, "squeue", "--noheader", "--jobs="+job, "--format=%e")
	if err != nil {
		return time.Time{}, fmt.Errorf("slurm: squeue does not print the end of job %s: %w", job, err)
	}
	end, err := time.Time{}, ErrNoEndTime
	// one line per component of a heterogeneous job; all end together
	for line := range strings.Lines(out) {
		if t, err2 := ParseTime(line, local); err2 == nil && (err != nil || t.Before(end)) {
			end, err = t, nil
		}
	}
	return end, err
}

// ParseTime parses a time in Slurm's format, "2026-11-20T17:00:00", in the zone local. The error is
// ErrNoEndTime for "N/A", "NONE", "Unknown" and "UNLIMITED", else it describes what is malformed.
func ParseTime(text string, local *time.Location) (time.Time, error) {
	text = strings.TrimSpace(text)
	switch strings.ToUpper(text) {
	case "", "N/A", "NONE", "UNKNOWN", "UNLIMITED", "INVALID":
		return time.Time{}, ErrNoEndTime
	}
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, local)
	if err != nil {
		return time.Time{}, fmt.Errorf("slurm: invalid time %q, want one such as 2026-11-20T17:00:00",
			clip(text))
	}
	return t, nil
}
