package keep

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

const (
	// usedFor is how long after its last use a group counts as in use by a job.
	usedFor = 5 * time.Minute
	// touchEvery is how often a job marks a group as in use.
	touchEvery = time.Minute
)

// errNoRoom means that the folder is full.
var errNoRoom = errors.New("keep: the folder holds as much as it may")

// A Folder is a user's part of a folder of the node. All methods are safe for concurrent use.
type Folder struct {
	fd     int // of the user's own part
	quota  int64
	now    func() time.Time
	others *others // the parts of other users; nil: copies are not shared

	mu      sync.Mutex
	claimed int64 // may be claimed before the files are counted again
}

// OpenFolder opens the user's part of dir, DIR/UID, and creates it if necessary. It holds at most
// quota bytes; each other job of the user may add a 64th of that.
//
// With share, a copy is used by all users who know its name and whom its mode lets read it.
//
// It returns an error unless dir has mode 1777, or is the user's own and nobody else can write to
// it, and unless the part is the user's own and nobody else can list it or write to it. With share,
// dir must be root's and have mode 1777.
func OpenFolder(dir string, quota int64, share bool) (*Folder, error) {
	fd, err := openShared(dir, share)
	if err != nil {
		return nil, err
	}
	own, err := openOwn(fd, share)
	if err != nil {
		err = fmt.Errorf("%s/%d: %w", dir, os.Geteuid(), err)
		return nil, errors.Join(err, unix.Close(fd))
	}
	f := &Folder{fd: own, quota: quota, now: time.Now}
	if share {
		f.others = &others{fd: fd}
		return f, nil
	}
	return f, unix.Close(fd)
}

// openShared opens the folder that holds the parts of all users.
func openShared(dir string, share bool) (int, error) {
	fd, err := openDirectory(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	return checked(fd, func(st *unix.Stat_t) error {
		own := int(st.Uid) == os.Geteuid() && st.Mode&0o022 == 0
		everybodys := st.Mode&0o7777 == 0o1777
		switch {
		case share && (st.Uid != 0 || !everybodys):
			return fmt.Errorf("%s has mode %04o and is user %d's; copies are shared in a folder of "+
				"root's with mode 1777", dir, st.Mode&0o7777, st.Uid)
		case !own && !everybodys:
			return fmt.Errorf("%s has mode %04o and is user %d's; copies are kept in a folder of mode "+
				"1777, or in one of your own that nobody else can write to", dir, st.Mode&0o7777, st.Uid)
		}
		return nil
	})
}

// checked returns fd if check accepts the file, else it closes fd.
func checked(fd int, check func(*unix.Stat_t) error) (int, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil {
		err = check(&st)
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// Check returns why OpenFolder would not use a folder, nil if it would. It changes nothing.
func Check(dir string, share bool) error {
	shared, err := openShared(dir, share)
	if err != nil {
		return err
	}
	own, _, err := openOwnPart(shared)
	switch {
	case err == nil:
		err = unix.Close(own)
	case errors.Is(err, unix.ENOENT): // OpenFolder makes it
		err = nil
	default:
		err = fmt.Errorf("%s/%d: %w", dir, os.Geteuid(), err)
	}
	return errors.Join(err, unix.Close(shared))
}

// openOwn opens this user's part of a folder, and creates it if necessary.
func openOwn(shared int, share bool) (int, error) {
	name := strconv.Itoa(os.Geteuid())
	if err := unix.Mkdirat(shared, name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, mode, err := openOwnPart(shared)
	if err != nil {
		return -1, err
	}
	if share && mode&0o011 != 0o011 { // those who know a name may look it up
		if err := unix.Fchmod(fd, 0o711); err != nil {
			return -1, errors.Join(err, unix.Close(fd))
		}
	}
	return fd, nil
}

// openOwnPart opens this user's part of a folder, if nobody else may list it or write to it.
func openOwnPart(shared int) (fd int, mode uint32, err error) {
	fd, err = openDirectory(shared, strconv.Itoa(os.Geteuid()), unix.O_NOFOLLOW)
	if err != nil {
		return -1, 0, err
	}
	fd, err = checked(fd, func(st *unix.Stat_t) error {
		mode = st.Mode
		switch {
		case int(st.Uid) != os.Geteuid():
			return fmt.Errorf("it belongs to user %d, not to user %d: the centre must remove it",
				st.Uid, os.Geteuid())
		case mode&0o077&^0o011 != 0:
			return fmt.Errorf("it has mode %04o: others must not list it or write to it, chmod it to "+
				"0700", mode&0o7777)
		}
		return nil
	})
	return fd, mode, err
}

// openDirectory opens a folder; flags are those besides the usual ones.
func openDirectory(at int, name string, flags int) (fd int, err error) {
	return posix.Open(at, name, unix.O_RDONLY|unix.O_DIRECTORY|flags, 0)
}

// list returns the names in a folder; after an error, those read so far.
func list(folder int) ([]string, error) {
	fd, err := openDirectory(folder, ".", 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), "the folder of copies")
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Close closes the Folder. Its Stores must be closed.
func (f *Folder) Close() error {
	if f.others == nil {
		return unix.Close(f.fd)
	}
	return errors.Join(unix.Close(f.fd), f.others.close())
}

// open opens a file of the part, which must be a regular one of this size. It follows no link, and
// waits for no FIFO.
func (f *Folder) open(name string, flags int, size int64) (*os.File, error) {
	fd, err := openRegular(f.fd, name, flags, size)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "a group"), nil
}

// clear removes the file with a group's name if it is not a group.
func (f *Folder) clear(name string, size int64) {
	file, err := f.open(name, os.O_RDONLY, size)
	if err == nil {
		_ = file.Close() // it was only read
	} else if errors.Is(err, errNoGroup) {
		_ = unix.Unlinkat(f.fd, name, 0) // if this fails, the group is not written
	}
}

// errNoGroup means that a file with a group's name is something else.
var errNoGroup = errors.New("keep: it is not a regular file of the group's size")

func openRegular(at int, name string, flags int, size int64) (fd int, err error) {
	fd, err = posix.Open(at, name, unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|flags, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO), errors.Is(err, unix.EISDIR):
		return -1, errNoGroup // a link, a FIFO, a folder
	case err != nil:
		return -1, err
	}
	return checked(fd, func(st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != size {
			return errNoGroup
		}
		return nil
	})
}

// create creates a file of this size, and evicts unused files to make room. An existing file stays.
// It returns errNoRoom if there is not enough room.
func (f *Folder) create(name string, size int64) error {
	if err := f.claim(size); err != nil {
		return err
	}
	// It gets its name when it is whole: another job may look for it.
	nascent := fmt.Sprintf("%s.%d%09d", name, os.Getpid(), time.Now().UnixNano())
	fd, err := posix.Open(f.fd, nascent, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "a group")
	if err = posix.Allocate(file, size); err == nil {
		err = unix.Linkat(f.fd, nascent, f.fd, name, 0)
	}
	switch {
	case errors.Is(err, unix.EEXIST):
		err = nil // another job of this user made it
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		err = errNoRoom
	}
	return errors.Join(err, unix.Unlinkat(f.fd, nascent, 0), file.Close())
}
