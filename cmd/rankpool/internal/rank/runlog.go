package rank

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/outlet"
)

const (
	// logBytes bounds the run log's lines that wait to be written: a minute's of 100 ranks.
	logBytes = 4 << 20
	// logPatience is how long a rank that ends waits for storage to accept the last lines of the
	// run log.
	logPatience = 5 * time.Second
)

// openRunLog opens the run log at path for appending. It is an error if the log cannot be opened,
// unless it is a FIFO without a reader, or the cache is started again; later failures are logged
// once, and training continues.
func openRunLog(path string, log *slog.Logger, again bool) (*outlet.Outlet, error) {
	f := &logFile{path: path}
	if err := f.open(); err != nil && !errors.Is(err, errNobodyReads) && !again {
		return nil, err
	}
	return outlet.New(f, logBytes, func(lost int64, err error) {
		if err != nil {
			log.Error("the run log cannot be written; training continues, and its lines are lost",
				"path", path, "error", Pathless(err))
		} else {
			log.Warn("the run log is written again; lines are missing before this one", "path",
				path, "lost", lost)
		}
	}), nil
}

// errNobodyReads is the error of a FIFO without a reader.
var errNobodyReads = errors.New("it is a FIFO without a reader")

// A logFile is a file that is appended to: a regular one, a device or a FIFO, whose readers may
// come and go.
type logFile struct {
	path string
	file *os.File // nil: not opened yet
}

func (f *logFile) open() (err error) {
	// Without O_NONBLOCK the opening of a FIFO waits for its reader.
	f.file, err = os.OpenFile(f.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0o644)
	if errors.Is(err, syscall.ENXIO) {
		return errNobodyReads
	}
	return err
}

// Write writes all of lines, and opens the file if it is not open. A FIFO whose reader has gone is
// opened again.
func (f *logFile) Write(lines []byte) (int, error) {
	if f.file == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.file.Write(lines)
	if errors.Is(err, syscall.EPIPE) {
		_ = f.file.Close() // nothing waits in it
		f.file, err = nil, errNobodyReads
	}
	return n, err
}

// IsRegular reports whether a regular file is at path, or none.
func IsRegular(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.Mode().IsRegular(), err
}

// KindOf describes the type of the file at path: "a device".
func KindOf(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Sprintf("nothing that can be examined (%v)", Pathless(err))
	case info.IsDir():
		return "a folder"
	case info.Mode()&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case info.Mode()&fs.ModeDevice != 0:
		return "a device"
	case info.Mode()&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a file"
}
