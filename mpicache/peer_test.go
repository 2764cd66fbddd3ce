package mpicache

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
)

// asNobody runs f as another user, on a thread that ends with it. Only root can.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test takes another user's place: run it as root")
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it
		const nobody = 65534
		// of this thread only
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestClientOfAnotherUser makes another user connect to a door whose modes let everybody in.
func TestClientOfAnotherUser(t *testing.T) {
	cl := newCluster(t, 1, 24, 1<<16)
	defer cl.close()
	path := filepath.Join(cl.dirs[0], doorName)
	// the two that t.TempDir has made
	for _, dir := range []string{cl.dirs[0], filepath.Dir(cl.dirs[0])} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1<<10)
	asNobody(t, func() {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		n := 0
		if err == nil {
			n, err = unix.Read(fd, got)
		}
		if err != nil {
			t.Error(err)
		}
		got = got[:max(0, n)]
		_ = unix.Close(fd) // it may not have been opened
	})
	if !strings.Contains(string(got),
		"the other end of the socket is user 65534, and this is user 0") {
		t.Errorf("the door replied %q", got)
	}
}

// TestDoorOfAnotherUser makes another user serve a door.
func TestDoorOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the two that t.TempDir has made
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, doorName)
	var listener net.Listener
	asNobody(t, func() {
		var err error
		if listener, err = net.Listen("unix", path); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		return
	}
	defer listener.Close()
	_, err := door.Dial(path, door.NewHello(door.ControlTrainer, 0, 0), time.Minute)
	if err == nil || !strings.Contains(err.Error(), "the other end of the socket is user 65534") {
		t.Errorf("the client takes it: %v", err)
	}
}
