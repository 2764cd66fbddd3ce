package door

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Door is a socket that accepts clients.
type Door struct{ listener *net.UnixListener }

// Open opens a door at path. It replaces one that a dead rank may have left there.
func Open(path string) (*Door, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("door: %w", err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("door: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("door: %w", err), listener.Close())
	}
	return &Door{listener}, nil
}

// Accept calls serve for each client, in a goroutine of its own, until the door is closed.
func (d *Door) Accept(log *slog.Logger, serve func(Socket)) {
	for {
		sock, err := d.listener.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			log.Warn("the door does not accept", "error", err)
			time.Sleep(10 * time.Millisecond) // out of descriptors: others may close theirs
			continue
		}
		if raw, err := sock.SyscallConn(); err == nil { // it fails when it is closed
			go serve(&unixSocket{sock, raw})
		}
	}
}

// Close closes the door. Connected clients stay connected.
func (d *Door) Close() error { return d.listener.Close() }

// A Socket is a connection to a client: a real or a simulated one.
type Socket interface {
	io.ReadWriteCloser
	CloseWrite() error
	SetReadDeadline(at time.Time) error
	SetWriteDeadline(at time.Time) error
	// WriteMsgUnix is net.UnixConn's.
	WriteMsgUnix(b, oob []byte, to *net.UnixAddr) (n, oobn int, err error)
	// WriteNow sends what can be sent without waiting.
	WriteNow(b []byte) (n int, err error)
	// Peer returns the process at the other end.
	Peer() (*unix.Ucred, error)
}

type unixSocket struct {
	*net.UnixConn
	raw syscall.RawConn // of the UnixConn
}

func (s *unixSocket) Peer() (*unix.Ucred, error) { return PeerOf(s.UnixConn) }

// WriteNow sends what the socket accepts at once.
func (s *unixSocket) WriteNow(b []byte) (n int, err error) {
	failed := s.raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Write(int(fd), b)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == unix.EAGAIN:
		return 0, nil
	}
	return max(n, 0), err
}

// PeerOf returns the process at the other end of a socket, as reported by the kernel. It returns an
// error if that process belongs to another user, except root: the modes of the socket and of its
// folder should prevent this, but may not.
func PeerOf(sock *net.UnixConn) (*unix.Ucred, error) {
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	control := raw.Control(
		func(fd uintptr) {
			cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		})
	if control != nil {
		err = control
	}
	if err != nil {
		return nil, err
	}
	if me := os.Geteuid(); int(cred.Uid) != me && cred.Uid != 0 {
		return nil, fmt.Errorf("the other end of the socket is user %d, and this is user %d",
			cred.Uid, me)
	}
	return cred, nil
}
