package stage

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A tree is the files below a folder, at either end. Paths are relative to it, in the file system's
// bytes; "" is the folder itself. Files are opened relative to their folder, which stays open, so
// that a file system that keeps no names is asked for one name, not for all in the path.
//
// It is safe for concurrent use.
type tree struct {
	root  string
	fault func(op, path string) error // of a test: what fails; nil

	mu   sync.Mutex
	open folders
}

// folders are open folders, by path.
type folders map[string]func() (*os.File, error)

// maxFolders is how many folders a tree keeps open. When there are more, it closes all of them.
const maxFolders = 64

func (t *tree) path(rel string) string { return path.Join(t.root, rel) }

// ask returns how a test wants a call to fail.
func (t *tree) ask(op, rel string) error {
	if t.fault == nil {
		return nil
	}
	return pathError(op, t.path(rel), t.fault(op, t.path(rel)))
}

// folder opens a folder, unless it is open.
func (t *tree) folder(rel string) (*os.File, error) {
	t.mu.Lock()
	open := t.open[rel]
	if open == nil {
		if t.open == nil || len(t.open) == maxFolders {
			defer t.open.close()
			t.open = folders{}
		}
		open = sync.OnceValues(func() (*os.File, error) {
			return os.OpenFile(t.path(rel), unix.O_DIRECTORY, 0)
		})
		t.open[rel] = open
	}
	t.mu.Unlock()
	f, err := open()
	if err != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, rel)
	}
	return f, err
}

// close closes the folders; calls that use one go on.
func (all folders) close() {
	for _, open := range all {
		if f, err := open(); err == nil {
			_ = f.Close() // nothing was written to it
		}
	}
}

// close closes the folders.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open.close()
	t.open = nil
}

// in makes a call on a name in its folder.
func (t *tree) in(op, rel string, call func(dir int, name string) error) error {
	if err := t.ask(op, rel); err != nil {
		return err
	}
	for {
		dir, err := t.folder(parent(rel))
		if err != nil {
			return err
		}
		calls, closed := dir.SyscallConn()
		if closed == nil {
			closed = calls.Control(func(fd uintptr) {
				err = posix.Retry(func() error { return call(int(fd), path.Base(rel)) })
			})
		}
		if closed == nil { // else it was closed to make room
			return pathError(op, t.path(rel), err)
		}
	}
}

// statFields is all that staging needs to know of a name.
const statFields = unix.STATX_TYPE | unix.STATX_MODE | unix.STATX_SIZE | unix.STATX_MTIME |
	unix.STATX_INO

// look describes a name, or with follow what it points to. If cached, the file system may answer
// from this machine's caches, unless it says that a file is empty: Lustre's metadata server does
// not know the sizes of files whose data are elsewhere.
func (t *tree) look(rel string, follow, cached bool) (i Info, err error) {
	flags := 0
	if !follow {
		flags |= unix.AT_SYMLINK_NOFOLLOW
	}
	err = t.in("stat", rel, func(dir int, name string) error {
		var st unix.Statx_t
		err := error(unix.EINVAL) // what kernels return that do not know the flag
		if cached {
			err = unix.Statx(dir, name, flags|unix.AT_STATX_DONT_SYNC, statFields, &st)
		}
		if errors.Is(err, unix.EINVAL) || err == nil && cached && st.Size == 0 {
			err = unix.Statx(dir, name, flags, statFields, &st)
		}
		i = infoOf(&st)
		return err
	})
	return i, err
}

func infoOf(st *unix.Statx_t) Info {
	i := Info{
		Kind: Other, Mode: uint32(st.Mode & 0o7777), ModTime: st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec),
		Inode: st.Ino,
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		i.Kind, i.Size = Regular, int64(st.Size)
	case unix.S_IFDIR:
		i.Kind = Folder
	case unix.S_IFLNK:
		i.Kind = Symlink
	}
	return i
}

// names returns all names in a folder, in any order.
func (t *tree) names(rel string) ([]string, error) {
	f, err := t.openFile("list", rel, unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// readlink returns the target of a symbolic link.
func (t *tree) readlink(rel string) (string, error) {
	if err := t.ask("readlink", rel); err != nil {
		return "", err
	}
	return os.Readlink(t.path(rel))
}

// mkdir creates a folder for this user only, unless another rank has created it meanwhile.
func (t *tree) mkdir(rel string) error {
	err := t.in("mkdir", rel, func(dir int, name string) error {
		return unix.Mkdirat(dir, name, 0o700)
	})
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// symlink creates a symbolic link.
func (t *tree) symlink(text, rel string) error {
	return t.in("symlink", rel, func(dir int, name string) error {
		return unix.Symlinkat(text, dir, name)
	})
}

// rename gives a file another name, replacing any name that is not a folder.
func (t *tree) rename(old, rel string) error {
	return t.in("rename", rel, func(dir int, name string) error {
		return unix.Renameat(unix.AT_FDCWD, t.path(old), dir, name)
	})
}

// remove removes a name that is not a folder.
func (t *tree) remove(rel string) error {
	return t.in("remove", rel, func(dir int, name string) error { return unix.Unlinkat(dir, name, 0) })
}

// chmod and chtime change a folder's permission bits, and a name's modification time.
func (t *tree) chmod(rel string, mode uint32) error {
	return t.in("chmod", rel, func(dir int, name string) error {
		return unix.Fchmodat(dir, name, mode, 0)
	})
}

func (t *tree) chtime(rel string, modTime int64) error {
	return t.in("chtime", rel, func(dir int, name string) error {
		times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, posix.Timespec(modTime)}
		return unix.UtimesNanoAt(dir, name, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func pathError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

// A file is an open file of a tree. Any number of goroutines may use it.
type file struct {
	*os.File
	t   *tree
	rel string
	fd  int
}

// openFile opens a file; op names the call to tests. O_NONBLOCK keeps a pipe in a file's place from
// blocking forever. It goes once the file is open, or the Go runtime would poll each file.
func (t *tree) openFile(op, rel string, flags int) (*file, error) {
	f := &file{t: t, rel: rel}
	err := t.in(op, rel, func(dir int, name string) (err error) {
		f.fd, err = unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_, err = unix.FcntlInt(uintptr(f.fd), unix.F_SETFL, flags&unix.O_APPEND)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.File = os.NewFile(uintptr(f.fd), t.path(rel))
	return f, nil
}

// create creates a new file, for reading and writing, for this user only.
func (t *tree) create(rel string) (*file, error) {
	return t.openFile("create", rel, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW)
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if err := f.t.ask("read", f.rel); err != nil {
		return 0, err
	}
	return f.File.ReadAt(p, off)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(p []byte, off int64) (n int, err error) {
	if err := f.t.ask("write", f.rel); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// info describes the file, as the file system's servers do.
func (f *file) info() (Info, error) {
	var st unix.Statx_t
	err := posix.Retry(func() error {
		return unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, statFields, &st)
	})
	return infoOf(&st), pathError("stat", f.Name(), err)
}
