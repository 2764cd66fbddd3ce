//go:build !mpi

package mpi

// Available says whether this build has MPI.
const Available = false

// Library is the MPI library's version text, "" without MPI.
func Library() string { return "" }

// Init fails: there is no MPI.
func Init() error { return ErrUnavailable }

// Rank is 0 without MPI.
func Rank() int { return 0 }

// Size is 1 without MPI.
func Size() int { return 1 }

// ThreadLevel is "" without MPI.
func ThreadLevel() string { return "" }

// MaxTag is 0 without MPI.
func MaxTag() int { return 0 }

// Isend fails: there is no MPI.
func Isend([]byte, int, int) (Request, error) { return 0, ErrUnavailable }

// Irecv fails: there is no MPI.
func Irecv([]byte, int, int) (Request, error) { return 0, ErrUnavailable }

// Improbe finds nothing: there is no MPI.
func Improbe(int) (from, sizeBytes int, msg Message, ok bool, err error) {
	return 0, 0, 0, false, ErrUnavailable
}

// Imrecv fails: there is no MPI.
func Imrecv([]byte, Message) (Request, error) { return 0, ErrUnavailable }

// Cancel fails: there is no MPI.
func Cancel(Request) error { return ErrUnavailable }

// Requests is an array of no requests without MPI.
type Requests struct{}

// Len is 0 without MPI.
func (*Requests) Len() int { return 0 }

// Append does nothing without MPI.
func (*Requests) Append(Request) {}

// Set does nothing without MPI.
func (*Requests) Set(int, Request) {}

// Remove does nothing without MPI.
func (*Requests) Remove(int) {}

// Testsome fails: there is no MPI.
func (*Requests) Testsome([]Done) ([]Done, error) { return nil, ErrUnavailable }

// Test finds nothing: there is no MPI.
func Test(_ []Request, done []Done) []Done { return done }

// Finalize fails: there is no MPI.
func Finalize() error { return ErrUnavailable }
