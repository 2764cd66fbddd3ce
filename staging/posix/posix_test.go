package posix

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestRetry(t *testing.T) {
	calls := []error{unix.EINTR, os.NewSyscallError("open", unix.EINTR), unix.ENOENT}
	made := 0
	err := Retry(func() error {
		made++
		return calls[made-1]
	})
	if !errors.Is(err, fs.ErrNotExist) || made != len(calls) {
		t.Errorf("%d calls end with %v, want %d with %v", made, err, len(calls), unix.ENOENT)
	}
}
