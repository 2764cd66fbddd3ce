package rank

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/session"
)

const (
	// logBytes bounds the run log's lines that wait to be written: a minute's of 100 ranks.
	logBytes = 4 << 20
	// logPatience is how long a rank that ends waits for storage to accept the last lines of the
	// run log.
	logPatience = 5 * time.Second
)

// openRunLog opens the run log at path for appending. If that fails when the cache is started
// again, it logs an error and returns nil, and training continues; so it does after later failures.
func openRunLog(path string, log *slog.Logger, again bool) (*outlet.Outlet, error) {
	failed := func(err error) {
		log.Error("the run log cannot be written; training continues, and its lines are lost", "path",
			path, "error", Pathless(err))
	}
	file, err := openLocked(path)
	if err != nil && again {
		failed(err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return outlet.New(file, logBytes, func(lost int64, err error) {
		if err != nil {
			failed(err)
		} else {
			log.Warn("the run log is written again; lines are missing before this one", "path",
				path, "lost", lost)
		}
	}), nil
}

// openLocked opens a log, and locks it until the process ends: the lines of two runs would be taken
// for those of one. Only regular files are locked, on file systems that can.
func openLocked(path string) (*os.File, error) {
	// Without O_NONBLOCK the opening of a FIFO waits for its reader.
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	if regular, _ := IsRegular(path); regular && errors.Is(session.Lock(file), unix.EWOULDBLOCK) {
		_ = file.Close()
		return nil, fmt.Errorf("another run writes to %s: name another file", path)
	}
	return file, nil
}

// IsRegular reports whether a regular file is at path, or none.
func IsRegular(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && info.Mode().IsRegular(), err
}
