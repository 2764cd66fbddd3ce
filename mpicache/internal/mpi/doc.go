// Package mpi binds the dozen MPI calls that rankpool makes; it is the only package that does.
//
// It is built with `CC=mpicc go build -tags mpi`: the compiler wrapper of any MPI supplies the flags. Without the tag
// Available is false and every call fails with ErrUnavailable.
//
// After Init one goroutine at a time may call (MPI_THREAD_SERIALIZED); it need not be locked to a thread. All traffic is on
// a communicator of our own. Memory given to Isend, Irecv and Imrecv must stay where it is until its Request is done:
// memory outside Go's heap, or pinned (runtime.Pinner).
package mpi

import (
	"errors"
	"fmt"
)

// ErrUnavailable is returned by every call of a build without the tag mpi.
var ErrUnavailable = errors.New("mpi: built without MPI; build with CC=mpicc go build -tags mpi")

// Error is an MPI call's failure.
type Error struct {
	Call string // as in the standard: MPI_Isend
	Code int
	Text string // MPI_Error_string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("mpi: %s: %s (code %d)", e.Call, e.Text, e.Code) }

// Request is an operation under way: the bits of an MPI_Request.
type Request uint64

// Message is a message that Improbe matched and that Imrecv must receive: the bits of an MPI_Message.
type Message uint64

// Done is an operation that Testsome or Test found finished.
type Done struct {
	Place int // of the request in the array that was tested
	Bytes int // received
	Err   error
}
