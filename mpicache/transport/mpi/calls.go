package mpi

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// world is the result of Init.
var world struct {
	comm        uintptr // ours, a copy of MPI_COMM_WORLD
	rank, size  int
	maxTag      int
	threadLevel int32
}

// fail returns the error for a call's code, nil for success.
func fail(name string, code int32) error {
	if code == success {
		return nil
	}
	r := &results
	if call(loaded.errorString, uintptr(code), out(&r.text), out(&r.b)) != success {
		r.b = 0
	}
	return &Error{Call: name, Code: int(code), Text: string(r.text[:r.b])}
}

// try calls a function, and returns its error.
func try(name string, function uintptr, args ...uintptr) error {
	return fail(name, call(function, args...))
}

// Init starts MPI, once in a process's life. Errors come back as codes from then on. Go keeps its
// signal handlers.
func Init() error {
	if loaded.initThread == 0 {
		return ErrNotLoaded
	}
	defer keepHandlers()()
	if err := try("MPI_Init_thread", loaded.initThread, 0, 0, uintptr(loaded.serialized),
		out(&world.threadLevel)); err != nil {
		return err
	}
	if world.threadLevel < loaded.serialized {
		return fmt.Errorf("mpi: this MPI does not offer MPI_THREAD_SERIALIZED: %s", loaded.Text)
	}
	return join()
}

// join makes our communicator.
func join() error {
	l, w := &loaded, &world
	// Errors that belong to no communicator are raised on MPI_COMM_SELF: MPI 4.0, §9.3.
	for _, comm := range []uintptr{l.world, l.self} {
		if err := try("MPI_Comm_set_errhandler", l.setErrhandler, comm, l.errorsReturn); err != nil {
			return err
		}
	}
	results.handle = 0
	if err := try("MPI_Comm_dup", l.commDup, l.world, out(&results.handle)); err != nil {
		return err
	}
	w.comm = uintptr(results.handle)
	if err := try("MPI_Comm_set_errhandler", l.setErrhandler, w.comm, l.errorsReturn); err != nil {
		return err
	}
	if err := try("MPI_Comm_rank", l.commRank, w.comm, out(&results.a)); err != nil {
		return err
	}
	w.rank = int(results.a)
	if err := try("MPI_Comm_size", l.commSize, w.comm, out(&results.a)); err != nil {
		return err
	}
	w.size = int(results.a)
	w.maxTag = 32767 // MPI 4.0, §9.1.2: the least upper bound
	code := call(l.commGetAttr, w.comm, uintptr(l.tagUpperBound), out(&results.bound),
		out(&results.a))
	if code == success && results.a != 0 {
		w.maxTag = int(*results.bound)
	}
	results.bound = nil
	return nil
}

// Rank is this process's rank.
func Rank() int { return world.rank }

// Size is the number of ranks.
func Size() int { return world.size }

// ThreadLevel returns the standard's name of the thread level that MPI gave to Init, such as
// MPI_THREAD_MULTIPLE.
func ThreadLevel() string {
	if world.threadLevel >= loaded.multiple {
		return "MPI_THREAD_MULTIPLE"
	}
	return "MPI_THREAD_SERIALIZED" // with less, Init fails
}

// MaxTag is the largest tag, at least 32767.
func MaxTag() int { return world.maxTag }

// Isend begins to send buf, of less than 2 GiB.
func Isend(buf []byte, to, tag int) (Request, error) {
	return begin("MPI_Isend", loaded.isend, buf, to, tag)
}

// Irecv begins to receive into buf, of less than 2 GiB.
func Irecv(buf []byte, from, tag int) (Request, error) {
	return begin("MPI_Irecv", loaded.irecv, buf, from, tag)
}

// begin calls MPI_Isend or MPI_Irecv.
func begin(name string, function uintptr, buf []byte, peer, tag int) (Request, error) {
	results.handle = 0
	code := call(function, data(buf), uintptr(len(buf)), loaded.byteType,
		uintptr(peer), uintptr(tag), world.comm, out(&results.handle))
	return begun(name, code)
}

// begun returns the request of an operation that was started, or the null request, which finishes
// at once.
func begun(name string, code int32) (Request, error) {
	if code != success {
		return Request(loaded.requestNull), fail(name, code)
	}
	return Request(results.handle), nil
}

// Improbe matches the next message with the tag from any rank, if one has arrived; it must then be
// received by Imrecv.
func Improbe(tag int) (from, sizeBytes int, msg Message, ok bool, err error) {
	l, r := &loaded, &results
	r.a, r.handle = 0, 0
	code := call(l.improbe, uintptr(l.anySource), uintptr(tag), world.comm,
		out(&r.a), out(&r.handle), out(&r.status))
	if code != success || r.a == 0 {
		return 0, 0, 0, false, fail("MPI_Improbe", code)
	}
	count, code := received(r.status[:])
	return l.source(r.status[:]), count, Message(r.handle), true, fail("MPI_Get_count", code)
}

// Imrecv starts to receive a matched message into buf, which has its size.
func Imrecv(buf []byte, msg Message) (Request, error) {
	l := &loaded
	inOut.message, results.handle = uint64(msg), 0
	code := call(l.imrecv, data(buf), uintptr(len(buf)), l.byteType,
		out(&inOut.message), out(&results.handle))
	return begun("MPI_Imrecv", code)
}

// Cancel cancels a pending receive; its Request is then invalid.
func Cancel(r Request) error {
	inOut.request = uint64(r)
	if err := try("MPI_Cancel", loaded.cancel, out(&inOut.request)); err != nil {
		return err
	}
	return try("MPI_Request_free", loaded.requestFree, out(&inOut.request))
}

// received returns the number of bytes in a status.
func received(status []byte) (n int, code int32) {
	code = call(loaded.getCount, data(status), loaded.byteType, out(&results.b))
	return int(results.b), code
}

// Finalize ends MPI. It may hang if a rank is gone.
func Finalize() error {
	err := try("MPI_Finalize", loaded.finalize)
	finalized.Store(err == nil)
	return err
}

var finalized atomic.Bool

// exitWait bounds Exit: the library's exit handlers may wait for a launcher that is gone, or for
// one on a busy machine.
const exitWait = 5 * time.Second

// Exit ends the process as a C program ends, if MPI has been finalized; else it returns. Exit
// handlers run.
//
// Source: measured: MPICH 4.2 reports the normal end of this process to its launcher in an exit
// handler, and not in MPI_Finalize. If the process ends as Go programs do, Hydra kills the other
// ranks, and prints a banner.
func Exit(code int) {
	if !finalized.Load() {
		return
	}
	time.AfterFunc(exitWait, func() { os.Exit(code) })
	call(loaded.exit, uintptr(code))
}
