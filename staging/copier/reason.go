package copier

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

// reasonOf says in words what went wrong, without the path that the words will follow.
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

// A DestinationError says why nothing more can be written to a destination; it ends staging on all
// ranks.
type DestinationError struct {
	Dest string
	Err  error
}

// Error is one sentence that says what to do.
func (e *DestinationError) Error() string {
	switch {
	case errors.Is(e.Err, unix.ENOSPC):
		return fmt.Sprintf("copier: no space is left at %s: free some, or stage a part of the data "+
			"set, then run the same command again", e.Dest)
	case errors.Is(e.Err, unix.EDQUOT):
		return fmt.Sprintf("copier: the quota at %s is used up: free some, or stage a part of the data "+
			"set, then run the same command again",
			e.Dest)
	case errors.Is(e.Err, unix.EROFS):
		return fmt.Sprintf("copier: %s is on a read-only file system: name a folder that can be "+
			"written to with --dest", e.Dest)
	}
	return fmt.Sprintf("copier: %s cannot be written to: %s", e.Dest, reasonOf(e.Err))
}

// Unwrap returns the system's error.
func (e *DestinationError) Unwrap() error { return e.Err }

// isFatal says whether an error at the destination would meet every file after it too.
func isFatal(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EROFS)
}

// passing are errors of storage that may pass: a busy server, and what NFS, Lustre and BeeGFS
// answer while a server fails over, has evicted this client, or has replaced a file that is looked
// up again then.
var passing = []error{unix.EAGAIN, unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.ESHUTDOWN}

func mayPass(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// tries is how often a read is tried, firstPause the wait before the second try; it doubles.
// Source: the fetcher's; a Lustre target fails over in tens of seconds, which the client itself
// waits for.
const (
	tries      = 4
	firstPause = 250 * time.Millisecond
)

// pause waits for d, or for ctx's end.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
