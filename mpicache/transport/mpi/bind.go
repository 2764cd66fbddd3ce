package mpi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is a loaded MPI library.
type Library struct {
	Path string // absolute, where the loader found it
	Text string // MPI_Get_library_version: one line or more
	ABI  string // Open MPI, MPICH, MPI 5
}

// loaded is the process's library; it stays forever.
var loaded struct {
	Library
	abi
	functions
}

// functions are the addresses of the MPI functions that we call.
type functions struct {
	initThread, finalize, libraryVersion, errorString       uintptr
	setErrhandler, commDup, commRank, commSize, commGetAttr uintptr
	isend, irecv, improbe, imrecv, cancel, requestFree      uintptr
	test, testsome, getCount                                uintptr
	// from the C library, which every MPI library needs
	exit uintptr
}

// names maps the functions to their names in C.
func (f *functions) names() map[*uintptr]string {
	return map[*uintptr]string{
		&f.initThread: "MPI_Init_thread", &f.finalize: "MPI_Finalize",
		&f.libraryVersion: "MPI_Get_library_version", &f.errorString: "MPI_Error_string",
		&f.setErrhandler: "MPI_Comm_set_errhandler", &f.commDup: "MPI_Comm_dup",
		&f.commRank: "MPI_Comm_rank",
		&f.commSize: "MPI_Comm_size", &f.commGetAttr: "MPI_Comm_get_attr",
		&f.isend: "MPI_Isend", &f.irecv: "MPI_Irecv", &f.improbe: "MPI_Improbe",
		&f.imrecv: "MPI_Imrecv",
		&f.cancel: "MPI_Cancel", &f.requestFree: "MPI_Request_free",
		&f.test: "MPI_Test", &f.testsome: "MPI_Testsome", &f.getCount: "MPI_Get_count",
		&f.exit: "exit",
	}
}

// results is where C writes what it returns through pointers: not on a stack, which Go moves, and
// not allocated for every call.
var results struct {
	a, b   int32
	handle uint64
	status [32]byte // as large as any ABI's
	bound  *int32   // points into C's memory
	text   [maxText]byte
}

// inOut is what C reads and writes through pointers.
var inOut struct{ message, request uint64 }

// out returns the address of a variable of this package.
func out[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// data returns the address of a slice's bytes, which are not on a stack.
func data(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// call calls a C function that returns an int. Addresses in args must be of memory that does not
// move.
func call(function uintptr, args ...uintptr) int32 {
	n := copy(arguments[:], args)
	r, _, _ := purego.SyscallN(function, arguments[:n]...)
	return int32(r)
}

// arguments holds the arguments of the current call: a slice of the caller's would be allocated for
// every call.
var arguments [7]uintptr // as many as MPI_Isend has

// Load loads the library at path, or with a name that the loader looks up, and detects its ABI. It
// does not start MPI. A library that does not fit is closed, and another one may be tried.
//
// Errors: those of the loader; a missing function; an unknown ABI.
func Load(path string) (Library, error) {
	runtime.LockOSThread() // the text of an error of the loader belongs to the thread
	defer runtime.UnlockOSThread()
	// Open MPI's plugins look up its symbols among the global ones.
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return Library{}, err
	}
	if err := bind(handle, path); err != nil {
		_ = purego.Dlclose(handle) // what failed before is the error
		return Library{}, err
	}
	return loaded.Library, nil
}

// bind fills in loaded.
func bind(handle uintptr, path string) error {
	symbol := func(name string) uintptr {
		address, err := purego.Dlsym(handle, name)
		if err != nil {
			return 0
		}
		return address
	}
	var f functions
	for to, name := range f.names() {
		if *to = symbol(name); *to == 0 {
			return fmt.Errorf("%s is not an MPI library of today: it has no %s", path, name)
		}
	}
	if code := call(f.libraryVersion, out(&results.text), out(&results.a)); code != success {
		return fmt.Errorf("%s: MPI_Get_library_version: code %d", path, code)
	}
	text := string(bytes.TrimRight(results.text[:results.a], "\x00\n"))
	path, file := locate(path, f.initThread)
	abi, err := detect(path, file, text, symbol)
	if err != nil {
		return err
	}
	loaded.Library = Library{Path: path, Text: text, ABI: abi.name}
	loaded.abi, loaded.functions = abi, f
	return nil
}

// locate returns the absolute path of a library by the address of one of its functions, and the
// file itself. The path keeps the requested name if that is in the same folder: the target of the
// link may change with an update.
func locate(name string, address uintptr) (path, file string) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return name, name
	}
	for line := range strings.Lines(string(maps)) {
		// 7f21c0a1e000-7f21c0b4b000 r-xp 0001e000 fe:00 1234  /usr/lib/libmpi.so.40.30.4
		fields := strings.SplitN(strings.TrimSpace(line), " ", 6)
		begin, end, _ := strings.Cut(fields[0], "-")
		first, _ := strconv.ParseUint(begin, 16, 64)
		last, _ := strconv.ParseUint(end, 16, 64)
		if len(fields) < 6 || uint64(address) < first || uint64(address) >= last {
			continue
		}
		file := strings.TrimSpace(fields[5])
		if filepath.IsAbs(name) {
			return name, file
		}
		if asked := filepath.Join(filepath.Dir(file), filepath.Base(name)); sameFile(asked, file) {
			return asked, file
		}
		return file, file
	}
	return name, name
}

func sameFile(a, b string) bool {
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}
