// Package mpi calls the dozen functions of MPI that rankpool needs. It is the only package that
// does.
//
// The library is loaded at run time, so one program runs under every MPI: Open MPI, everything with
// MPICH's ABI, and libraries with the standard ABI of MPI 5. What differs between them is one table
// for each ABI, in abi.go. C is called through purego, without cgo.
//
// Load comes first, then Init; both once in a process's life. After Init one goroutine at a time
// may call (MPI_THREAD_SERIALIZED); it need not be locked to a thread. All traffic is on a
// communicator of our own. Memory given to Isend, Irecv and Imrecv must stay where it is until its
// Request is done: memory outside Go's heap, or pinned (runtime.Pinner).
package mpi

import (
	"errors"
	"fmt"
)

// ErrNotLoaded is returned by Init when no library has been loaded.
var ErrNotLoaded = errors.New("mpi: no MPI library is loaded")

// Error is an MPI call's failure.
type Error struct {
	Call string // as in the standard: MPI_Isend
	Code int
	Text string // MPI_Error_string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("mpi: %s: %s (code %d)", e.Call, e.Text, e.Code)
}

// Request is an operation under way: the bits of an MPI_Request.
type Request uint64

// Message is a message that Improbe matched and that Imrecv must receive: the bits of an
// MPI_Message.
type Message uint64

// Done is an operation that Testsome or Test found finished.
type Done struct {
	Place int // of the request in the array that was tested
	Bytes int // received
	Err   error
}
