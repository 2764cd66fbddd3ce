//go:build mpi

package mpi

/*
#cgo noescape rp_improbe
#cgo nocallback rp_improbe
#cgo noescape rp_test
#cgo nocallback rp_test
#cgo noescape rp_testsome
#cgo nocallback rp_testsome
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// MPI's handles are macros in one implementation and integers in another: they stay in C, or travel as bits.

typedef struct { int place, bytes, code; } rp_done;
typedef struct { int room; MPI_Request *request; MPI_Status *status; int *index; } rp_requests;

static MPI_Comm rp_comm;
static int rp_rank, rp_size, rp_max_tag, rp_level;

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a Request must hold an MPI_Request");
_Static_assert(sizeof(MPI_Message) <= sizeof(uint64_t), "a Message must hold an MPI_Message");

static int rp_get_rank(void) { return rp_rank; }
static int rp_get_size(void) { return rp_size; }
static int rp_get_max_tag(void) { return rp_max_tag; }
static int rp_get_level(void) { return rp_level; }

static uint64_t rp_bits(MPI_Request r) { uint64_t u = 0; memcpy(&u, &r, sizeof r); return u; }
static MPI_Request rp_request(uint64_t u) { MPI_Request r; memcpy(&r, &u, sizeof r); return r; }

// Go needs every handler of a signal to run on its alternate stack; MPI may install some that do not.
static void rp_onstack(void) {
	for (int s = 1; s < NSIG; s++) {
		struct sigaction a;
		if (sigaction(s, NULL, &a) != 0 || a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN || (a.sa_flags & SA_ONSTACK)) continue;
		a.sa_flags |= SA_ONSTACK;
		sigaction(s, &a, NULL);
	}
}

static int rp_init(int *provided) {
	// These are Go's; UCX would take the faults and SIGHUP, Open MPI the faults and SIGABRT, MPICH SIGUSR1.
	static const int kept[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 };
	enum { KEPT = sizeof kept / sizeof kept[0] };
	struct sigaction go[KEPT];
	for (int i = 0; i < KEPT; i++) sigaction(kept[i], NULL, &go[i]);
	int e = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, provided);
	if (e != MPI_SUCCESS) return e;
	for (int i = 0; i < KEPT; i++) sigaction(kept[i], &go[i], NULL);
	rp_onstack();
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	if ((e = MPI_Comm_dup(MPI_COMM_WORLD, &rp_comm)) != MPI_SUCCESS) return e;
	MPI_Comm_set_errhandler(rp_comm, MPI_ERRORS_RETURN);
	MPI_Comm_rank(rp_comm, &rp_rank);
	MPI_Comm_size(rp_comm, &rp_size);
	int *bound, found;
	rp_max_tag = 32767; // MPI 4.0, §9.1.2: the least upper bound
	if (MPI_Comm_get_attr(rp_comm, MPI_TAG_UB, &bound, &found) == MPI_SUCCESS && found) rp_max_tag = *bound;
	rp_level = *provided;
	*provided = *provided >= MPI_THREAD_SERIALIZED;
	return MPI_SUCCESS;
}

static int rp_isend(const void *buf, int n, int to, int tag, uint64_t *u) {
	MPI_Request r = MPI_REQUEST_NULL;
	int e = MPI_Isend(buf, n, MPI_BYTE, to, tag, rp_comm, &r);
	*u = rp_bits(r);
	return e;
}

static int rp_irecv(void *buf, int n, int from, int tag, uint64_t *u) {
	MPI_Request r = MPI_REQUEST_NULL;
	int e = MPI_Irecv(buf, n, MPI_BYTE, from, tag, rp_comm, &r);
	*u = rp_bits(r);
	return e;
}

typedef struct { int found, from, bytes; uint64_t msg; } rp_probed;

static int rp_improbe(int tag, rp_probed *p) {
	MPI_Message m;
	MPI_Status s;
	int e = MPI_Improbe(MPI_ANY_SOURCE, tag, rp_comm, &p->found, &m, &s);
	if (e != MPI_SUCCESS || !p->found) return e;
	p->from = s.MPI_SOURCE;
	p->msg = 0;
	memcpy(&p->msg, &m, sizeof m);
	return MPI_Get_count(&s, MPI_BYTE, &p->bytes);
}

static int rp_imrecv(void *buf, int n, uint64_t msg, uint64_t *u) {
	MPI_Message m;
	memcpy(&m, &msg, sizeof m);
	MPI_Request r = MPI_REQUEST_NULL;
	int e = MPI_Imrecv(buf, n, MPI_BYTE, &m, &r);
	*u = rp_bits(r);
	return e;
}

static int rp_cancel(uint64_t u) {
	MPI_Request r = rp_request(u);
	int e = MPI_Cancel(&r);
	return e == MPI_SUCCESS ? MPI_Request_free(&r) : e;
}

static int rp_room(rp_requests *q, int room) {
	MPI_Request *r = realloc(q->request, room * sizeof *r);
	if (r) q->request = r;
	MPI_Status *s = realloc(q->status, room * sizeof *s);
	if (s) q->status = s;
	int *i = realloc(q->index, room * sizeof *i);
	if (i) q->index = i;
	if (!r || !s || !i) return 0;
	q->room = room;
	return 1;
}

static void rp_set(rp_requests *q, int place, uint64_t u) { q->request[place] = rp_request(u); }
static void rp_move(rp_requests *q, int to, int from) { q->request[to] = q->request[from]; }

static void rp_note(rp_done *d, int place, int code, MPI_Status *s) {
	d->place = place;
	d->code = code;
	d->bytes = 0;
	if (code == MPI_SUCCESS) MPI_Get_count(s, MPI_BYTE, &d->bytes);
}

static int rp_testsome(rp_requests *q, int n, int *found, rp_done *done) {
	int e = MPI_Testsome(n, q->request, found, q->index, q->status);
	if (*found == MPI_UNDEFINED) *found = 0;
	if (e != MPI_SUCCESS && e != MPI_ERR_IN_STATUS) return e;
	for (int i = 0; i < *found; i++) rp_note(&done[i], q->index[i], e == MPI_SUCCESS ? e : q->status[i].MPI_ERROR, &q->status[i]);
	return MPI_SUCCESS;
}

// rp_test tests requests in order up to the first that is under way.
static int rp_test(const uint64_t *u, int n, rp_done *done) {
	int i;
	for (i = 0; i < n; i++) {
		MPI_Request r = rp_request(u[i]);
		MPI_Status s;
		int flag = 0;
		int e = MPI_Test(&r, &flag, &s);
		if (e == MPI_SUCCESS && !flag) break;
		rp_note(&done[i], i, e, &s);
	}
	return i;
}
*/
import "C"

import (
	"bytes"
	"fmt"
	"unsafe"
)

// Available says whether this build has MPI.
const Available = true

// fail is the error of a call's code, nil for success.
func fail(call string, code C.int) error {
	if code == C.MPI_SUCCESS {
		return nil
	}
	var text [C.MPI_MAX_ERROR_STRING]byte
	var n C.int
	C.MPI_Error_string(code, (*C.char)(unsafe.Pointer(&text[0])), &n)
	return &Error{Call: call, Code: int(code), Text: string(text[:n])}
}

// Library is the MPI library's version text, of one or more lines. It may be called before Init.
func Library() string {
	var text [C.MPI_MAX_LIBRARY_VERSION_STRING]byte
	var n C.int
	C.MPI_Get_library_version((*C.char)(unsafe.Pointer(&text[0])), &n)
	return string(bytes.TrimRight(text[:n], "\x00\n"))
}

// Init starts MPI, once in a process's life.
//
// Errors come back as codes from then on. Go keeps its handlers of faults and of the signals that end or notify a process; other
// handlers that MPI installed are made to use the alternate stack, which Go demands.
//
// Source: measured: MPICH 4.0 (with UCX 1.13) installs handlers of SIGHUP and SIGUSR1, Open MPI 4.1 of SIGABRT and faults.
func Init() error {
	var serialized C.int
	if err := fail("MPI_Init_thread", C.rp_init(&serialized)); err != nil {
		return err
	}
	if serialized == 0 {
		return fmt.Errorf("mpi: this MPI does not offer MPI_THREAD_SERIALIZED: %s", Library())
	}
	return nil
}

// Rank is this process's rank.
func Rank() int { return int(C.rp_get_rank()) }

// Size is the number of ranks.
func Size() int { return int(C.rp_get_size()) }

// ThreadLevel names the thread level that MPI gave to Init, as in the standard: MPI_THREAD_MULTIPLE.
func ThreadLevel() string {
	switch C.rp_get_level() {
	case C.MPI_THREAD_MULTIPLE:
		return "MPI_THREAD_MULTIPLE"
	case C.MPI_THREAD_SERIALIZED:
		return "MPI_THREAD_SERIALIZED"
	}
	return "" // Init fails
}

// MaxTag is the largest tag, at least 32767.
func MaxTag() int { return int(C.rp_get_max_tag()) }

// data is where a slice's bytes are.
func data(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// Isend begins to send buf, of less than 2 GiB.
func Isend(buf []byte, to, tag int) (Request, error) {
	var r C.uint64_t
	code := C.rp_isend(data(buf), C.int(len(buf)), C.int(to), C.int(tag), &r)
	return Request(r), fail("MPI_Isend", code)
}

// Irecv begins to receive into buf, of less than 2 GiB.
func Irecv(buf []byte, from, tag int) (Request, error) {
	var r C.uint64_t
	code := C.rp_irecv(data(buf), C.int(len(buf)), C.int(from), C.int(tag), &r)
	return Request(r), fail("MPI_Irecv", code)
}

// Improbe matches the next message with the tag from any rank, if one is there; it must then be received by Imrecv.
func Improbe(tag int) (from, sizeBytes int, msg Message, ok bool, err error) {
	var p C.rp_probed
	code := C.rp_improbe(C.int(tag), &p)
	return int(p.from), int(p.bytes), Message(p.msg), p.found != 0, fail("MPI_Improbe", code)
}

// Imrecv begins to receive a matched message into buf, which has its size.
func Imrecv(buf []byte, msg Message) (Request, error) {
	var r C.uint64_t
	code := C.rp_imrecv(data(buf), C.int(len(buf)), C.uint64_t(msg), &r)
	return Request(r), fail("MPI_Imrecv", code)
}

// Cancel gives up a receive that is under way; its Request is gone then.
func Cancel(r Request) error { return fail("MPI_Cancel", C.rp_cancel(C.uint64_t(r))) }

// Requests is an array of requests, in C's memory, that are tested together. The zero value is an empty array.
type Requests struct {
	c    C.rp_requests
	n    int
	done []C.rp_done
}

// Len is the number of requests.
func (q *Requests) Len() int { return q.n }

// Append adds a request at place Len().
func (q *Requests) Append(r Request) {
	if q.n == int(q.c.room) {
		room := max(64, 2*q.n)
		if C.rp_room(&q.c, C.int(room)) == 0 {
			panic("mpi: no memory for the array of requests")
		}
		q.done = make([]C.rp_done, room)
	}
	q.n++
	q.Set(q.n-1, r)
}

// Set puts another request at a place.
func (q *Requests) Set(place int, r Request) { C.rp_set(&q.c, C.int(place), C.uint64_t(r)) }

// Remove takes a place out; the last request moves there.
func (q *Requests) Remove(place int) {
	q.n--
	C.rp_move(&q.c, C.int(place), C.int(q.n))
}

// Testsome appends to done those requests that have finished; their places hold no request then, until Set or Remove.
func (q *Requests) Testsome(done []Done) ([]Done, error) {
	if q.n == 0 {
		return done, nil
	}
	var found C.int
	code := C.rp_testsome(&q.c, C.int(q.n), &found, &q.done[0])
	return note(done, q.done[:found]), fail("MPI_Testsome", code)
}

// Test appends to done the leading requests of rs that have finished, up to the first that has not.
func Test(rs []Request, done []Done) []Done {
	var finished [16]C.rp_done
	for first := 0; first < len(rs); {
		some := rs[first:min(len(rs), first+len(finished))]
		n := int(C.rp_test((*C.uint64_t)(unsafe.Pointer(&some[0])), C.int(len(some)), &finished[0]))
		for i := range n {
			finished[i].place += C.int(first)
		}
		done = note(done, finished[:n])
		if first += n; n < len(some) {
			break
		}
	}
	return done
}

// note translates what C found.
func note(done []Done, found []C.rp_done) []Done {
	for _, d := range found {
		done = append(done, Done{Place: int(d.place), Bytes: int(d.bytes), Err: fail("MPI_Test", d.code)})
	}
	return done
}

// Finalize ends MPI. It may hang when a rank is gone.
func Finalize() error { return fail("MPI_Finalize", C.MPI_Finalize()) }
