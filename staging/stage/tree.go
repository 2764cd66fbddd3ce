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
	open map[string]*folder
}

// maxFolders is how many folders a tree keeps open that nobody uses.
const maxFolders = 64

// A folder is a folder of a tree, open while it is in use, and as long as there is room.
type folder struct {
	once sync.Once
	fd   int
	err  error
	uses int // under tree.mu
}

func newTree(root string, fault func(op, path string) error) *tree {
	return &tree{root: root, fault: fault, open: map[string]*folder{}}
}

func (t *tree) path(rel string) string { return path.Join(t.root, rel) }

// ask returns how a test wants a call to fail.
func (t *tree) ask(op, rel string) error {
	if t.fault == nil {
		return nil
	}
	return pathError(op, t.path(rel), t.fault(op, t.path(rel)))
}

// folder opens a folder, and returns its descriptor and a function that gives it back.
func (t *tree) folder(rel string) (fd int, done func(), err error) {
	t.mu.Lock()
	f := t.open[rel]
	if f == nil {
		f = &folder{}
		t.open[rel] = f
	}
	f.uses++
	t.mu.Unlock()
	f.once.Do(func() {
		f.fd, f.err = posix.Open(unix.AT_FDCWD, t.path(rel), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	})
	done = func() { t.release(f) }
	if f.err != nil {
		done()
		return 0, nil, pathError("open", t.path(rel), f.err)
	}
	return f.fd, done, nil
}

// release gives back a folder. It closes those that could not be opened, and of too many some that
// nobody uses.
func (t *tree) release(f *folder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f.uses--
	if f.err == nil && len(t.open) <= maxFolders {
		return
	}
	for rel, old := range t.open {
		if old.uses == 0 && (old.err != nil || len(t.open) > maxFolders) {
			t.drop(rel, old)
		}
	}
}

func (t *tree) drop(rel string, f *folder) {
	if f.err == nil {
		_ = unix.Close(f.fd) // nothing was written to it
	}
	delete(t.open, rel)
}

// close closes the folders.
func (t *tree) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rel, f := range t.open {
		if f.uses == 0 {
			t.drop(rel, f)
		}
	}
}

// in makes a call on a name in its folder.
func (t *tree) in(op, rel string, call func(dir int, name string) error) error {
	if err := t.ask(op, rel); err != nil {
		return err
	}
	dir, done, err := t.folder(parent(rel))
	if err != nil {
		return err
	}
	defer done()
	return pathError(op, t.path(rel),
		posix.Retry(func() error { return call(dir, path.Base(rel)) }))
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
	dir, done, err := t.folder(rel)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := posix.Open(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, pathError("open", t.path(rel), err)
	}
	list := os.NewFile(uintptr(fd), t.path(rel))
	defer list.Close()
	return list.Readdirnames(-1)
}

// readlink returns the target of a symbolic link.
func (t *tree) readlink(rel string) (text string, err error) {
	buffer := make([]byte, unix.PathMax)
	err = t.in("readlink", rel, func(dir int, name string) error {
		n, err := unix.Readlinkat(dir, name, buffer)
		text = string(buffer[:max(n, 0)])
		return err
	})
	return text, err
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

// free returns how many bytes an unprivileged user may still write.
func (t *tree) free() (int64, error) {
	var st unix.Statfs_t
	err := posix.Retry(func() error { return unix.Statfs(t.root, &st) })
	return int64(st.Bavail) * st.Bsize, pathError("statfs", t.root, err)
}

// sync flushes what was written to the tree's file system.
func (t *tree) sync() error {
	return t.in("syncfs", "", func(dir int, _ string) error { return unix.Syncfs(dir) })
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

// openFile opens a file; op names the call to tests. O_NONBLOCK has no effect on regular files, and
// keeps a pipe in a file's place from blocking forever.
func (t *tree) openFile(op, rel string, flags int) (*file, error) {
	f := &file{t: t, rel: rel}
	err := t.in(op, rel, func(dir int, name string) (err error) {
		f.fd, err = unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
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

// finish sets the modification time and the permission bits.
func (f *file) finish(modTime int64, mode uint32) error {
	if err := f.t.chtime(f.rel, modTime); err != nil {
		return err
	}
	return f.t.chmod(f.rel, mode)
}
