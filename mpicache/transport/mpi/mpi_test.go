package mpi

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"rankpool/mpicache/transport/mpi/mpitest"
)

// start loads a fake library and starts it. The process may do so repeatedly: a fake leaves nothing
// behind.
func start(t *testing.T, abi string) Library {
	t.Helper()
	library, err := Load(mpitest.Build(t, abi))
	if err != nil {
		t.Fatal(err)
	}
	if err := Init(); err != nil {
		t.Fatal(err)
	}
	return library
}

// TestMain ends as a rank ends: with a real library, it notifies the launcher.
func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("RANKPOOL_TEST_LIBRARY") != "" {
		Exit(code)
	}
	os.Exit(code)
}

// TestExit ends processes before and after MPI_Finalize.
func TestExit(t *testing.T) {
	if when := os.Getenv("RANKPOOL_TEST_EXIT"); when != "" {
		start(t, "MPICH")
		if when == "after" {
			if err := Finalize(); err != nil {
				t.Fatal(err)
			}
		}
		Exit(7)
		os.Exit(8)
	}
	for when, want := range map[string]struct {
		code int
		said string
	}{"before": {8, ""}, "after": {7, "told the launcher\n"}} {
		command := exec.Command(os.Args[0], "-test.run=^TestExit$")
		command.Env = append(os.Environ(), "RANKPOOL_TEST_EXIT="+when)
		var said strings.Builder
		command.Stderr = &said
		err := command.Run()
		if code := command.ProcessState.ExitCode(); code != want.code ||
			said.String() != want.said {
			t.Errorf("%s MPI_Finalize: exit code %d, %q, %v", when, code, said.String(), err)
		}
	}
}

// TestCalls makes the calls with each ABI.
func TestCalls(t *testing.T) {
	for _, abi := range []string{"OPEN_MPI", "MPICH", "STANDARD"} {
		t.Run(abi, func(t *testing.T) {
			before := *readHandlers()
			start(t, abi)
			if after := *readHandlers(); after != before {
				t.Error("MPI_Init has changed signal handlers")
			}
			t.Run("Messages", messages)
			t.Run("MatchedMessages", matchedMessages)
			t.Run("Errors", failures)
			t.Run("Cancel", cancelled)
			t.Run("NoAllocations", noAllocations)
		})
	}
}

func TestLoad(t *testing.T) {
	for abi, want := range map[string]string{
		"OPEN_MPI": "Open MPI", "MPICH": "MPICH",
		"STANDARD": "MPI 5",
	} {
		library := start(t, abi)
		if library.ABI != want || !strings.HasSuffix(library.Path, "/"+mpitest.Names[abi]) ||
			!strings.Contains(library.Text, "(fake)\nsecond") {
			t.Errorf("%s: %+v", abi, library)
		}
		if Rank() != 0 || Size() != 1 || MaxTag() != 1<<20 ||
			ThreadLevel() != "MPI_THREAD_SERIALIZED" {
			t.Errorf("%s: rank %d of %d, tags up to %d, %s", abi, Rank(), Size(), MaxTag(),
				ThreadLevel())
		}
	}
	for abi, want := range map[string]string{
		"DRAFT":   "version 1 of MPI 5's ABI",
		"UNKNOWN": "(Foreign MPI 1.0) is neither Open MPI",
	} {
		if _, err := Load(mpitest.Build(t, abi)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", abi, err, want)
		}
	}
	if _, err := Load("libc.so.6"); err == nil ||
		!strings.Contains(err.Error(), "libc.so.6 is not an MPI library") {
		t.Errorf("libc: %v", err)
	}
	if _, err := Load("libnothing.so.1"); err == nil ||
		!strings.Contains(err.Error(), "libnothing.so.1: cannot open") {
		t.Errorf("a missing library: %v", err)
	}
}

func messages(t *testing.T) {
	var q Requests
	want, got := []byte("in place"), make([]byte, 8)
	waits := make([]byte, 100)
	q.Append(must(Irecv(waits, 0, 3))) // stays under way
	q.Append(must(Irecv(got, 0, 2)))
	q.Append(must(Isend(want, 0, 2)))
	done, err := q.Testsome(nil)
	if err != nil || len(done) != 2 || done[0].Place != 1 || done[0].Bytes != 8 ||
		done[0].Err != nil || done[1].Place != 2 {
		t.Fatalf("Testsome: %+v, %v", done, err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("received %q", got)
	}
	q.Remove(1) // the send's place goes there
	q.Remove(1)
	if done, err := q.Testsome(nil); len(done) != 0 || err != nil || q.Len() != 1 {
		t.Errorf("Testsome: %+v, %v", done, err)
	}
}

func matchedMessages(t *testing.T) {
	if _, _, _, ok, err := Improbe(9); ok || err != nil {
		t.Fatalf("Improbe found a message that was not sent: %v", err)
	}
	sends := []Request{must(Isend([]byte("first"), 0, 9)), must(Isend([]byte("next"), 0, 9))}
	if done := Test(sends, nil); len(done) != 2 || done[1].Place != 1 {
		t.Errorf("sends: %+v", done)
	}
	for _, want := range []string{"first", "next"} {
		from, n, message, ok, err := Improbe(9)
		if from != 0 || n != len(want) || !ok || err != nil {
			t.Fatalf("Improbe: %d bytes from %d, %v, %v", n, from, ok, err)
		}
		got := make([]byte, n)
		if done := Test([]Request{must(Imrecv(got, message))}, nil); len(done) != 1 ||
			done[0].Bytes != n || string(got) != want {
			t.Errorf("%+v: %q, want %q", done, got, want)
		}
	}
}

func failures(t *testing.T) {
	r, err := Isend([]byte("x"), 0, -1)
	var failed *Error
	if !errors.As(err, &failed) || *failed != (Error{"MPI_Isend", 4, "error of class 4"}) {
		t.Fatalf("Isend: %v", err)
	}
	if done := Test([]Request{r}, nil); len(done) != 1 || done[0].Err != nil {
		t.Errorf("the request of what failed does not end at once: %+v", done)
	}
	var q Requests
	q.Append(must(Irecv(make([]byte, 2), 0, 1)))
	q.Append(must(Isend([]byte("too long"), 0, 1)))
	done, err := q.Testsome(nil)
	if err != nil || len(done) != 2 || !errors.As(done[0].Err, &failed) ||
		failed.Text != "message truncated" || done[1].Err != nil {
		t.Errorf("Testsome: %+v, %v", done, err)
	}
}

func cancelled(t *testing.T) {
	if err := Cancel(must(Irecv(make([]byte, 2), 0, 1))); err != nil {
		t.Error(err)
	}
}

// noAllocations checks that the calls that are made for every message allocate nothing.
func noAllocations(t *testing.T) {
	var q Requests
	q.Append(must(Irecv(make([]byte, 8), 0, 7)))
	buf, scratch := make([]byte, 8), make([]Done, 0, 8)
	one := make([]Request, 1)
	allocations := testing.AllocsPerRun(100, func() {
		one[0] = must(Isend(buf, 0, 5))
		scratch = Test(one, scratch[:0])
		_, n, message, _, _ := Improbe(5)
		one[0] = must(Imrecv(buf[:n], message))
		scratch = Test(one, scratch[:0])
		scratch, _ = q.Testsome(scratch[:0])
	})
	if allocations != 0 && (!underRaceDetector() || allocations >= 9) {
		t.Errorf("%v allocations for 9 calls", allocations)
	}
}

// underRaceDetector reports whether sync.Pool, which purego uses, drops items on purpose.
func underRaceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func must(r Request, err error) Request {
	if err != nil {
		panic(err)
	}
	return r
}

// startAny loads RANKPOOL_TEST_LIBRARY, or else the fake library, and starts MPI.
func startAny(tb testing.TB) {
	tb.Helper()
	path := os.Getenv("RANKPOOL_TEST_LIBRARY")
	if path == "" {
		path = mpitest.Build(tb, "MPICH")
	}
	if _, err := Load(path); err != nil {
		tb.Fatal(err)
	}
	if err := Init(); err != nil {
		tb.Fatal(err)
	}
}
