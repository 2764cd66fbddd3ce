// A library that behaves like MPI in a world of one: what is sent to rank 0 is received by it, in order of a tag.
// One of OPEN_MPI, MPICH, STANDARD, DRAFT and UNKNOWN says what its handles, statuses and constants are like.
// A negative tag is refused. A message that is longer than its receive ends that with MPI_ERR_TRUNCATE.
// MPI_Init_thread takes SIGUSR1, as MPICH does, with a handler that Go cannot live with. MPI_Finalize tells the
// launcher at exit, as MPICH 4.2 does.

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, ERR_TAG = 4, ERR_TRUNCATE = 15, UNDEFINED = -32766 };

#if defined OPEN_MPI
typedef void *Handle;
typedef struct { int source, tag, error, cancelled; size_t count; } Status;
enum { ANY_SOURCE = -1, TAG_UB = 0, ERR_IN_STATUS = 18, SERIALIZED = 2 };
#define TEXT "Open MPI v4.9.9 (fake)\nsecond line"
char ompi_mpi_comm_world[8], ompi_mpi_comm_self[8], ompi_mpi_byte[8], ompi_mpi_errors_return[8], ompi_request_null[8];
#define WORLD ((Handle)ompi_mpi_comm_world)
#define SELF ((Handle)ompi_mpi_comm_self)
#define BYTE ((Handle)ompi_mpi_byte)
#define ERRORS_RETURN ((Handle)ompi_mpi_errors_return)
#define REQUEST_NULL ((Handle)ompi_request_null)
#elif defined MPICH || defined UNKNOWN
typedef int Handle;
typedef struct { int count, count_high, source, tag, error; } Status;
enum { ANY_SOURCE = -2, TAG_UB = 0x64400001, ERR_IN_STATUS = 17, SERIALIZED = 2 };
#ifdef MPICH
#define TEXT "MPICH Version:\t4.9.9 (fake)\nsecond line"
#else
#define TEXT "Foreign MPI 1.0"
#endif
#define WORLD 0x44000000
#define SELF 0x44000001
#define BYTE 0x4c00010d
#define ERRORS_RETURN 0x54000001
#define REQUEST_NULL 0x2c000000
#else
typedef void *Handle;
typedef struct { int source, tag, error, reserved[5]; } Status;
#define count reserved[0]
enum { ANY_SOURCE = -1, TAG_UB = 501, ERR_IN_STATUS = 19, SERIALIZED = 2048 };
#define TEXT "MPICH Version:\t5.9.9 (fake)\nsecond line"
#define WORLD ((Handle)0x101)
#define SELF ((Handle)0x102)
#define BYTE ((Handle)0x247)
#define ERRORS_RETURN ((Handle)0x143)
#define REQUEST_NULL ((Handle)0x180)
#ifdef STANDARD
int MPI_Abi_get_version(int *major, int *minor) { *major = 1; *minor = 0; return SUCCESS; }
#endif
#endif

// need ends the process at an argument that mpi.h would not have given.
#define need(true) do { if (!(true)) { fprintf(stderr, "fakempi.c:%d: %s\n", __LINE__, #true); abort(); } } while (0)

enum { ROOM = 256 };
typedef struct { int used, receives, done, tag, error, bytes, room; void *to; } Request;
typedef struct { int used, tag, bytes, order; void *data; } Message;
static Request requests[ROOM];
static Message messages[ROOM];
static int sent;

static char ours[8]; // where our communicator is, for handles that are addresses
static Handle comm_of(void) { return sizeof(Handle) == 4 ? (Handle)(intptr_t)0x44000005 : (Handle)(intptr_t)ours; }
static Handle handle_of(int i) { return (Handle)(intptr_t)(0x1000000 + i); }
static int index_of(Handle h) { return (int)((intptr_t)h - 0x1000000); }

static void ignore(int number) { (void)number; }

int MPI_Get_library_version(char *text, int *length) {
	strcpy(text, TEXT);
	*length = strlen(text);
	return SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided) {
	need(!argc && !argv && wanted == SERIALIZED);
	struct sigaction bad = { .sa_handler = ignore };
	sigaction(SIGUSR1, &bad, NULL);
	*provided = wanted;
	return SUCCESS;
}

static void tell(void) { fputs("told the launcher\n", stderr); }

int MPI_Finalize(void) { return atexit(tell); }

int MPI_Comm_set_errhandler(Handle comm, Handle handler) {
	need(comm == WORLD || comm == SELF || comm == comm_of());
	need(handler == ERRORS_RETURN);
	return SUCCESS;
}

int MPI_Comm_dup(Handle comm, Handle *copy) { need(comm == WORLD); *copy = comm_of(); return SUCCESS; }
int MPI_Comm_rank(Handle comm, int *rank) { need(comm == comm_of()); *rank = 0; return SUCCESS; }
int MPI_Comm_size(Handle comm, int *size) { need(comm == comm_of()); *size = 1; return SUCCESS; }

int MPI_Comm_get_attr(Handle comm, int key, void *value, int *found) {
	static int bound = 1 << 20;
	need(comm == comm_of() && key == TAG_UB);
	*(int **)value = &bound;
	*found = 1;
	return SUCCESS;
}

int MPI_Error_string(int code, char *text, int *length) {
	*length = sprintf(text, code == ERR_TRUNCATE ? "message truncated" : "error of class %d", code);
	return SUCCESS;
}

static Message *oldest(int tag) {
	Message *first = NULL;
	for (Message *m = messages; m < messages + ROOM; m++)
		if (m->used && m->tag == tag && (!first || m->order < first->order)) first = m;
	return first;
}

static void receive(Request *r, Message *m) {
	r->done = 1;
	r->error = m->bytes > r->room ? ERR_TRUNCATE : SUCCESS;
	r->bytes = m->bytes > r->room ? r->room : m->bytes;
	memcpy(r->to, m->data, r->bytes);
	free(m->data);
	m->used = 0;
}

static Request *begin(Request r, Handle *handle) {
	int i = 0;
	while (requests[i].used) i++;
	need(i < ROOM);
	r.used = 1;
	requests[i] = r;
	*handle = handle_of(i);
	return &requests[i];
}

int MPI_Isend(const void *data, int bytes, Handle type, int to, int tag, Handle comm, Handle *request) {
	need(type == BYTE && comm == comm_of() && to == 0);
	if (tag < 0) return ERR_TAG;
	int i = 0;
	while (messages[i].used) i++;
	need(i < ROOM);
	messages[i] = (Message){ 1, tag, bytes, sent++, memcpy(malloc(bytes + 1), data, bytes) };
	begin((Request){ .done = 1 }, request);
	for (Request *r = requests; r < requests + ROOM; r++) // In this fake only one receive waits for a tag.
		if (r->used && r->receives && !r->done && r->tag == tag) { receive(r, oldest(tag)); break; }
	return SUCCESS;
}

int MPI_Irecv(void *to, int room, Handle type, int from, int tag, Handle comm, Handle *request) {
	need(type == BYTE && comm == comm_of() && (from == 0 || from == ANY_SOURCE));
	Request *r = begin((Request){ .receives = 1, .tag = tag, .to = to, .room = room }, request);
	Message *m = oldest(tag);
	if (m) receive(r, m);
	return SUCCESS;
}

int MPI_Improbe(int from, int tag, Handle comm, int *found, Handle *message, Status *status) {
	need(from == ANY_SOURCE && comm == comm_of());
	Message *m = oldest(tag);
	*found = m != NULL;
	if (!m) return SUCCESS;
	*message = handle_of(m - messages);
	memset(status, 0x55, sizeof *status);
	status->source = 0;
	status->count = m->bytes;
	return SUCCESS;
}

int MPI_Imrecv(void *to, int room, Handle type, Handle *message, Handle *request) {
	need(type == BYTE);
	Message *m = &messages[index_of(*message)];
	need(m->used);
	receive(begin((Request){ .receives = 1, .to = to, .room = room }, request), m);
	return SUCCESS;
}

static int end(Handle *request, Status *status) {
	Request *r = &requests[index_of(*request)];
	memset(status, 0x55, sizeof *status);
	status->source = 0;
	status->count = r->bytes;
	r->used = 0;
	*request = REQUEST_NULL;
	return r->error;
}

int MPI_Test(Handle *request, int *flag, Status *status) {
	*flag = *request == REQUEST_NULL || requests[index_of(*request)].done;
	status->count = 0;
	return *flag && *request != REQUEST_NULL ? end(request, status) : SUCCESS;
}

int MPI_Testsome(int n, Handle *all, int *found, int *places, Status *statuses) {
	int live = 0, failed = 0;
	*found = 0;
	for (int i = 0; i < n; i++) {
		if (all[i] == REQUEST_NULL) continue;
		live++;
		if (!requests[index_of(all[i])].done) continue;
		int code = end(&all[i], &statuses[*found]);
		statuses[*found].error = code;
		failed |= code != SUCCESS;
		places[(*found)++] = i;
	}
	if (!live) *found = UNDEFINED;
	return failed ? ERR_IN_STATUS : SUCCESS;
}

int MPI_Get_count(const Status *status, Handle type, int *n) { need(type == BYTE); *n = status->count; return SUCCESS; }
int MPI_Cancel(Handle *request) { need(requests[index_of(*request)].used); return SUCCESS; }

int MPI_Request_free(Handle *request) {
	requests[index_of(*request)].used = 0;
	*request = REQUEST_NULL;
	return SUCCESS;
}
