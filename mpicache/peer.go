package mpicache

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerOf returns the process at the other end of a socket, as reported by the kernel. It returns an
// error if that belongs to another user, except root: the modes of the socket and of its folder
// should prevent that, and may not.
func peerOf(sock *net.UnixConn) (*unix.Ucred, error) {
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
