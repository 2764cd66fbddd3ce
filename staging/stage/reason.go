package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// reasonOf describes what went wrong, in words that follow the path.
func reasonOf(err error) string {
	var inPath *fs.PathError
	var inLink *os.LinkError
	switch {
	case errors.As(err, &inPath):
		return inPath.Op + ": " + inPath.Err.Error()
	case errors.As(err, &inLink):
		return inLink.Op + ": " + inLink.Err.Error()
	}
	return err.Error()
}

// A DestinationError means that nothing more can be written to a destination; it ends staging on
// all ranks.
type DestinationError struct {
	Dest string
	Err  error
}

// Error returns one sentence, with what to do.
func (e *DestinationError) Error() string {
	switch {
	case errors.Is(e.Err, unix.ENOSPC):
		return fmt.Sprintf("stage: no space is left at %s: free some, or stage a part of the data "+
			"set, then run the same command again", e.Dest)
	case errors.Is(e.Err, unix.EDQUOT):
		return fmt.Sprintf("stage: the quota at %s is used up: free some, or stage a part of the data "+
			"set, then run the same command again",
			e.Dest)
	case errors.Is(e.Err, unix.EROFS):
		return fmt.Sprintf("stage: %s is on a read-only file system: name a folder that can be "+
			"written to with --dest", e.Dest)
	}
	return fmt.Sprintf("stage: %s cannot be written to: %s", e.Dest, reasonOf(e.Err))
}

// Unwrap returns the system's error.
func (e *DestinationError) Unwrap() error { return e.Err }

// isFatal reports whether an error at the destination would affect every file after it too.
func isFatal(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// passing are storage errors that may be temporary: a busy server, and what NFS, Lustre and BeeGFS
// return while a server fails over, has evicted this client, or has replaced a file, which is then
// looked up again.
var passing = []error{unix.EAGAIN, unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.ESHUTDOWN}

func mayPass(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// tries is how often a read is tried, firstPause the wait before the second try; it doubles.
// Source: as in the fetcher; a Lustre target fails over in tens of seconds, which the client itself
// waits for.
const (
	tries      = 4
	firstPause = 250 * time.Millisecond
)

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
