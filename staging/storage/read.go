package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
)

// A SampleError says why a sample could not be read.
type SampleError struct {
	ID     draw.SampleID
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

// ErrChecksum means that a sample's bytes on storage have another checksum than in the manifest or
// their TFRecord file. It is wrapped in a *SampleError.
var ErrChecksum = errors.New("staging: wrong checksum")

// IndexAgain is the advice for a file that differs from the manifest.
const IndexAgain = "; index the data set again"

// A Failure is the reason why one try to read failed.
type Failure struct {
	Reason  string
	Err     error
	MayPass bool // the next try may succeed
}

// passing are errors that may be temporary: signals, a busy server, and what NFS, Lustre and BeeGFS
// return while a server fails over, has evicted this client, or has replaced a file, which is then
// looked up again.
var passing = []error{
	unix.EINTR, unix.EAGAIN, unix.ESTALE, unix.EIO, unix.ETIMEDOUT, unix.ESHUTDOWN,
}

// MayPass reports whether an error of the system may be temporary.
func MayPass(err error) bool {
	return slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// SystemFailure returns the Failure of an error of the system.
func SystemFailure(err error) *Failure {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return &Failure{Reason: "is missing" + IndexAgain, Err: err}
	}
	return &Failure{Reason: "cannot be read: " + err.Error(), Err: err, MayPass: MayPass(err)}
}

// differs returns the Failure of a file that differs from the manifest.
func differs(format string, args ...any) *Failure {
	return &Failure{Reason: fmt.Sprintf(format, args...) + IndexAgain}
}

// sampleError returns the error for the caller of r; nil if nothing failed.
func (failed *Failure) sampleError(m *dataset.Manifest, r *read) error {
	if failed == nil {
		return nil
	}
	reason := failed.Reason
	if r.tries > 1 {
		reason += fmt.Sprintf(" (tried %d times)", r.tries)
	}
	return &SampleError{ID: r.id, Path: m.RelPath(r.id), Reason: reason, Err: failed.Err}
}

// check returns why the bytes read are not the sample of the manifest that r is for: got of want
// bytes were read into r.into and tail (the checksum after the data of a TFRecord file's record,
// ignored for other formats), in the tries-th try, of a file that has sizeBytes bytes and was
// modified at modTime. If the size and time are those after the read, this detects every change of
// the file before or during the read that changes its modification time.
func check(m *dataset.Manifest, r *read, tail *[dataset.RecordCRCBytes]byte, got, want, tries int,
	sizeBytes, modTime int64,
) *Failure {
	id := r.id
	// A wrong checksum is worth one more try: memory or a cable may have been at fault.
	again := tries < 2
	switch {
	case !m.SizeFits(id, sizeBytes) && m.Format(id) == dataset.FormatFile:
		return differs("has %d bytes, the manifest says %d", sizeBytes, m.Size(id))
	case !m.SizeFits(id, sizeBytes):
		return differs("has %d bytes, the manifest says at least %d", sizeBytes, m.End(id))
	case modTime != m.ModTime(id):
		return differs("was modified at %s, the manifest says %s", dataset.TimeText(modTime),
			dataset.TimeText(m.ModTime(id)))
	case got < want:
		return &Failure{
			Reason: fmt.Sprintf("ends after %d of %d bytes", got, want),
			Err:    io.ErrUnexpectedEOF, MayPass: true,
		}
	case m.Format(id) == dataset.FormatTFRecord &&
		shards.MaskedCRC(r.into) != binary.LittleEndian.Uint32(tail[:]):
		return &Failure{
			Reason: "holds a damaged record: the checksum of its data is wrong",
			Err:    ErrChecksum, MayPass: again,
		}
	}
	if want, known := m.Checksum(id); known && dataset.ChecksumOf(r.into) != want {
		return &Failure{
			Reason: "has other bytes than the manifest says: their checksum is wrong" + IndexAgain,
			Err:    ErrChecksum, MayPass: again,
		}
	}
	return nil
}
