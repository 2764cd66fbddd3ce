package staging

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"rankpool/scheduler"
)

// A SampleError says why a sample could not be read.
type SampleError struct {
	ID     scheduler.SampleID
	Path   string // relative to the manifest's root
	Reason string // in words that follow the path
	Err    error  // the system's error; nil if the file differs from the manifest
}

// Error returns one sentence that names id and path.
func (e *SampleError) Error() string {
	return fmt.Sprintf("staging: sample %d (%s): %s", e.ID, e.Path, e.Reason)
}

// Unwrap returns Err.
func (e *SampleError) Unwrap() error { return e.Err }

// indexAgain is the advice for a file that differs from the manifest.
const indexAgain = "; index the data set again"

// A failure is the reason why one try to read failed.
type failure struct {
	reason  string
	err     error
	mayPass bool // the next try may succeed
}

// passing are errors that may be temporary: signals, a busy server, and what NFS, Lustre and BeeGFS
// return while a server fails over, has evicted this client, or has replaced a file, which is then
// looked up again.
var passing = []error{
	unix.EINTR, unix.EAGAIN, unix.ESTALE, unix.EIO, unix.ETIMEDOUT,
	unix.ESHUTDOWN,
}

func systemFailure(err error) *failure {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return &failure{reason: "is missing" + indexAgain, err: err}
	}
	mayPass := slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
	return &failure{reason: "cannot be read: " + err.Error(), err: err, mayPass: mayPass}
}

// sampleError returns the error for the caller of r; nil if nothing failed.
func (failed *failure) sampleError(m *Manifest, r *read) error {
	if failed == nil {
		return nil
	}
	reason := failed.reason
	if r.tries > 1 {
		reason += fmt.Sprintf(" (tried %d times)", r.tries)
	}
	return &SampleError{ID: r.id, Path: m.RelPath(r.id), Reason: reason, Err: failed.err}
}

// check returns why the bytes read are not sample id of the manifest: got of want bytes were read
// into sample and tail (see verify), in the tries-th try, of a file that has sizeBytes bytes and
// was modified at modTime. If the size and time are those after the read, this detects every change
// of the file before or during the read that changes its modification time.
func (m *Manifest) check(id scheduler.SampleID, sample []byte, tail *[crcBytes]byte, got, want,
	tries int, sizeBytes, modTime int64,
) *failure {
	switch {
	case !m.sizeFits(id, sizeBytes) && m.Format(id) == FormatFile:
		return &failure{reason: fmt.Sprintf("has %d bytes, the manifest says %d", sizeBytes, m.Size(id)) +
			indexAgain}
	case !m.sizeFits(id, sizeBytes):
		return &failure{reason: fmt.Sprintf("has %d bytes, the manifest says at least %d", sizeBytes,
			m.end(id)) + indexAgain}
	case modTime != m.ModTime(id):
		return &failure{reason: fmt.Sprintf("was modified at %s, the manifest says %s",
			timeText(modTime), timeText(m.ModTime(id))) + indexAgain}
	case got < want:
		return &failure{
			reason: fmt.Sprintf("ends after %d of %d bytes", got, want),
			err:    io.ErrUnexpectedEOF, mayPass: true,
		}
	}
	return m.verify(id, sample, tail, tries)
}

// readFull reads into p starting at offset, in as many pieces as the file returns, up to the end of
// the file.
func readFull(file StorageFile, p []byte, offset int64) (got int, err error) {
	for got < len(p) {
		n, err := file.ReadAt(p[got:], offset+int64(got))
		got += n
		switch {
		case errors.Is(err, io.EOF) || err == nil && n == 0:
			return got, nil
		case err != nil:
			return got, err
		}
	}
	return got, nil
}
