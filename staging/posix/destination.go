package posix

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"
)

// Reason describes what went wrong, in words that follow the path.
func Reason(err error) string {
	if at, is := errors.AsType[*fs.PathError](err); is {
		return at.Op + ": " + at.Err.Error()
	}
	return err.Error()
}

// A DestinationError means that nothing more can be written to the destination of a command.
type DestinationError struct {
	Command, Dest string
	Err           error
}

// CannotWrite returns a DestinationError.
func CannotWrite(command, dest string, err error) error {
	return &DestinationError{command, dest, err}
}

// Error returns one sentence, with what to do.
func (e *DestinationError) Error() string {
	remedy := "free some, then run the same command again"
	switch {
	case errors.Is(e.Err, unix.ENOSPC):
		return fmt.Sprintf("%s: no space is left at %s: %s", e.Command, e.Dest, remedy)
	case errors.Is(e.Err, unix.EDQUOT):
		return fmt.Sprintf("%s: the quota at %s is used up: %s", e.Command, e.Dest, remedy)
	case errors.Is(e.Err, unix.EROFS):
		return fmt.Sprintf("%s: %s is on a read-only file system: name a folder that can be written "+
			"to with --dest", e.Command, e.Dest)
	}
	return fmt.Sprintf("%s: %s cannot be written to: %v", e.Command, e.Dest, e.Err)
}

// Unwrap returns the system's error.
func (e *DestinationError) Unwrap() error { return e.Err }
