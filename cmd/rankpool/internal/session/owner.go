package session

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Any user can guess the name of a session folder, and create folders beside it. Its content is
// trusted: sockets, states, the Python client. So only this user and root may be able to replace a
// part of its path. The client checks the folder's owner, and who serves the socket
// (python/rankpool/same_user.py).

// maxLinks is the maximum number of symbolic links in a path.
//
// Source: Linux, path_resolution(7).
const maxLinks = 40

// CheckFolder returns an error unless path is a folder of this user that no other user can
// replace or write to. Symbolic links may lead to it, but it must not be one.
func CheckFolder(path string) error {
	whole, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	w := walk{user: os.Geteuid(), rest: parts(whole)}
	defer w.close()
	if err := w.toRoot(); err != nil {
		return err
	}
	for len(w.rest) > 0 {
		if err := w.step(); err != nil {
			return fmt.Errorf(
				"%s is not safe: %w; name another folder with --runtime-dir or --session", path,
				err)
		}
	}
	return nil
}

// A walk goes through a path part by part, and never leaves what it has checked.
type walk struct {
	user  int
	fd    int
	at    string   // the path so far
	rest  []string // of the path
	links int
}

func parts(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"),
		func(part string) bool { return part == "" || part == "." })
}

func (w *walk) close() {
	if w.fd > 0 {
		_ = unix.Close(w.fd) // nothing was written
	}
}

func (w *walk) toRoot() (err error) {
	w.close()
	w.at = "/"
	w.fd, err = unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	return err
}

func (w *walk) step() error {
	part, name := w.rest[0], filepath.Join(w.at, w.rest[0])
	w.rest = w.rest[1:]
	fd, err := unix.Openat(w.fd, part, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), unix.Close(fd))
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		err := w.follow(fd, name, st)
		return errors.Join(err, unix.Close(fd))
	}
	w.close()
	w.fd, w.at = fd, name
	return w.check(st)
}

// follow continues at the target of a symbolic link.
func (w *walk) follow(fd int, name string, link unix.Stat_t) error {
	if !w.trusts(link) {
		return fmt.Errorf("%s is a symbolic link of user %d, and you are user %d", name, link.Uid,
			w.user)
	}
	if w.links++; len(w.rest) == 0 || w.links > maxLinks {
		return fmt.Errorf("%s is a symbolic link, not a folder", name)
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	w.rest = append(parts(string(target[:n])), w.rest...)
	if target[0] == '/' {
		return w.toRoot()
	}
	return nil
}

func (w *walk) check(st unix.Stat_t) error {
	last := len(w.rest) == 0
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("%s is not a folder", w.at)
	case !w.trusts(st) || last && int(st.Uid) != w.user:
		return fmt.Errorf("%s belongs to user %d, and you are user %d", w.at, st.Uid, w.user)
	case st.Mode&0o022 != 0 && (last || st.Mode&unix.S_ISVTX == 0):
		return fmt.Errorf("%s can be written to by other users (mode %04o)", w.at, st.Mode&0o7777)
	}
	return nil
}

// trusts reports whether a file with this state belongs to this user or root. In a container that
// maps only some users, root of the host appears as the overflow user.
func (w *walk) trusts(st unix.Stat_t) bool {
	return int(st.Uid) == w.user || st.Uid == 0 || int(st.Uid) == unmappedUser()
}

// unmappedUser is the user that stands for all users that this user namespace does not map; -1 if
// it maps all.
//
// Source: user_namespaces(7).
func unmappedUser() int {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil || slices.Equal(strings.Fields(string(text)), []string{"0", "0", "4294967295"}) {
		return -1
	}
	text, _ = os.ReadFile("/proc/sys/kernel/overflowuid")
	if uid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
		return uid
	}
	return -1
}
