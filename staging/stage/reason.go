package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// reasonOf describes what went wrong, in words that follow the path.
func reasonOf(err error) string {
	if at, is := errors.AsType[*fs.PathError](err); is {
		return at.Op + ": " + at.Err.Error()
	}
	if at, is := errors.AsType[*os.LinkError](err); is {
		return at.Op + ": " + at.Err.Error()
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
			"set, then run the same command again", e.Dest)
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
