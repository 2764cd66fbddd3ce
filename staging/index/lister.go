package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A lister lists folders. It is safe for concurrent use.
type lister interface {
	// list lists the folder at an absolute path. It returns nil and no error if known is not nil and
	// is the folder's current modification time. The error is a vanishedError if something disappeared
	// meanwhile.
	list(ctx context.Context, path string, known *int64) (*listing, error)
}

// A vanishedError means that a folder, or a file of one that is being listed, disappeared during
// the scan. Its parent has changed, and is listed again.
type vanishedError struct{ err error }

func (e *vanishedError) Error() string { return e.err.Error() }
func (e *vanishedError) Unwrap() error { return e.err }

func isVanished(err error) bool {
	_, is := errors.AsType[*vanishedError](err)
	return is
}

// A systemLister lists folders with system calls on this machine, at most cap(places) at a time.
type systemLister struct {
	places  chan struct{} // one element per goroutine in a system call
	sync    bool          // see ScanOptions.Sync
	buffers sync.Pool     // *[]byte, direntBytes each
}

func newSystemLister(concurrency int, syncAttributes bool) *systemLister {
	concurrency = cmp.Or(concurrency, DefaultScanConcurrency)
	l := &systemLister{places: make(chan struct{}, concurrency), sync: syncAttributes}
	l.buffers.New = func() any { buffer := make([]byte, direntBytes); return &buffer }
	return l
}

func (l *systemLister) list(ctx context.Context, path string, known *int64) (*listing, error) {
	l.places <- struct{}{}
	defer func() { <-l.places }()
	if known != nil {
		_, modTime, err := statFolder(path)
		if err != nil || modTime == *known {
			return nil, err
		}
	}
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, vanishedOr(err)
	}
	defer dir.Close()
	modTime, err := settle(dir)
	if err != nil {
		return nil, err
	}
	found := &listing{ModTime: modTime}
	entries, err := l.entries(dir, found)
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: path, Err: err}
	}
	if err := l.look(ctx, dir, entries, found); err != nil {
		return nil, err
	}
	found.sort()
	return found, nil
}

// vanishedOr wraps err in a vanishedError if it means that a folder does not exist, or is not a
// folder.
func vanishedOr(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return &vanishedError{err}
	}
	return err
}

// An unseen is an entry that must be examined: a file, a link, or one of unknown kind.
type unseen struct {
	name string // ends with a zero byte
	kind uint8
}

// entries reads the folder, adds its sub-folders to found, and returns the entries that must be
// examined.
func (l *systemLister) entries(dir *os.File, found *listing) (entries []unseen, err error) {
	buffer := l.buffers.Get().(*[]byte)
	defer l.buffers.Put(buffer)
	strange := false
	hidden, err := readDirents(int(dir.Fd()), *buffer, func(d dirent) {
		switch d.kind {
		case unix.DT_DIR:
			found.Folders = append(found.Folders, subFolder{Name: d.text()})
		case unix.DT_REG, unix.DT_LNK, unix.DT_UNKNOWN:
			entries = append(entries, unseen{string(d.name), d.kind})
		default:
			strange = true
		}
	})
	found.Others = hidden || strange
	return entries, err
}

// look examines all entries of the folder dir, in chunks, in parallel as far as places allow.
func (l *systemLister) look(ctx context.Context, dir *os.File, entries []unseen, found *listing) (
	err error,
) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		fd    = int(dir.Fd())
	)
	found.Files = make([]scannedFile, 0, len(entries))
	chunk := func(entries []unseen) {
		seen, chunkErr := l.lookAt(ctx, fd, entries)
		mu.Lock()
		defer mu.Unlock()
		found.Files = append(found.Files, seen.Files...)
		found.Folders = append(found.Folders, seen.Folders...)
		found.Dangling = append(found.Dangling, seen.Dangling...)
		if chunkErr != nil && err == nil {
			err = fmt.Errorf("%s/%w", strings.TrimSuffix(dir.Name(), "/"), chunkErr)
			if isVanished(chunkErr) {
				err = &vanishedError{err}
			}
		}
	}
	for entries := range slices.Chunk(entries, statChunk) {
		select {
		case l.places <- struct{}{}:
			group.Go(func() {
				defer func() { <-l.places }()
				chunk(entries)
			})
		default:
			chunk(entries)
		}
	}
	group.Wait()
	return err
}

// lookAt examines entries of the folder fd; its error starts with the name.
func (l *systemLister) lookAt(ctx context.Context, fd int, entries []unseen) (
	found listing, err error,
) {
	if err := context.Cause(ctx); err != nil {
		return listing{}, err
	}
	found.Files = make([]scannedFile, 0, len(entries))
	var st unix.Statx_t
	for _, entry := range entries {
		name := entry.name[:len(entry.name)-1]
		link, err := l.attributes(fd, entry, &st)
		if link && isDangling(err) {
			found.Dangling = append(found.Dangling, name)
			continue
		}
		if err != nil {
			return listing{}, fmt.Errorf("%s: %w", name, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			found.Files = append(found.Files,
				scannedFile{name, int64(st.Size), st.Mtime.Sec*1e9 + int64(st.Mtime.Nsec)})
		case unix.S_IFDIR:
			found.Folders = append(found.Folders, subFolder{name, link})
		}
	}
	return found, nil
}

// isDangling reports whether err, of examining a link, means that the link leads nowhere.
func isDangling(err error) bool {
	return !isVanished(err) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) ||
		errors.Is(err, unix.ELOOP))
}

// attributes sets *st to the attributes of the entry, or of the target if it is a link, and reports
// whether it is a link. If the entry disappeared, the error is a vanishedError; a dangling link is
// another error.
//
// Unless Sync is set, the file system may use attributes that it has cached. If it reports a size
// of 0, attributes asks the servers once more: Lustre's metadata server does not know the sizes of
// files whose data are elsewhere.
func (l *systemLister) attributes(fd int, entry unseen, st *unix.Statx_t) (link bool, err error) {
	relaxed := unix.AT_STATX_DONT_SYNC
	if l.sync {
		relaxed = 0
	}
	link = entry.kind == unix.DT_LNK
	if entry.kind == unix.DT_UNKNOWN {
		if err := statx(fd, entry.name, relaxed|unix.AT_SYMLINK_NOFOLLOW, st); err != nil {
			return false, vanishedOr(err)
		}
		link = st.Mode&unix.S_IFMT == unix.S_IFLNK
	}
	err = statx(fd, entry.name, relaxed, st)
	// Kernels of some storage appliances do not know the flag.
	if errors.Is(err, unix.EINVAL) || err == nil && st.Size == 0 && relaxed != 0 {
		err = statx(fd, entry.name, 0, st)
	}
	if errors.Is(err, unix.ENOENT) && (!link ||
		statx(fd, entry.name, unix.AT_SYMLINK_NOFOLLOW, st) != nil) {
		return link, &vanishedError{err}
	}
	return link, err
}

// settle waits until any later change of the folder is certain to show in its modification time,
// and returns that time.
//
// Time stamps advance in steps: 1 to 10 ms in Linux (its tick), a second on file systems that keep
// whole seconds. A folder that is listed in the step in which it changed could change again
// unnoticed. So if the folder changed less than a step ago, settle waits: once, and at most about a
// second.
func settle(dir *os.File) (modTime int64, err error) {
	const tick, coarse = 20 * time.Millisecond, time.Second + 20*time.Millisecond
	var st unix.Stat_t
	look := func() error {
		if err := posix.Retry(func() error { return unix.Fstat(int(dir.Fd()), &st) }); err != nil {
			return &fs.PathError{Op: "stat", Path: dir.Name(), Err: err}
		}
		return nil
	}
	if err := look(); err != nil {
		return 0, err
	}
	step := tick
	if st.Mtim.Nsec == 0 {
		step = coarse
	}
	if age := time.Since(time.Unix(st.Mtim.Unix())); age >= 0 && age < step {
		time.Sleep(step - age)
		if err := look(); err != nil {
			return 0, err
		}
	}
	return st.Mtim.Nano(), nil
}

// A folderID identifies a folder on this machine.
type folderID struct{ device, inode uint64 }

// statFolder returns a folder's identity and its modification time according to the file system's
// servers. The error is a vanishedError if it does not exist.
func statFolder(path string) (id folderID, modTime int64, err error) {
	var st unix.Stat_t
	err = posix.Retry(func() error { return unix.Stat(path, &st) })
	if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
		err = unix.ENOTDIR
	}
	if err != nil {
		return folderID{}, 0, vanishedOr(&fs.PathError{Op: "stat", Path: path, Err: err})
	}
	return folderID{st.Dev, st.Ino}, st.Mtim.Nano(), nil
}
