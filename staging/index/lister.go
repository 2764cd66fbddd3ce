package index

import (
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
	// list lists the folder at an absolute path.
	list(ctx context.Context, path string) (*listing, error)
}

// A systemLister lists folders with system calls on this machine, at most cap(places) at a time.
type systemLister struct {
	places chan struct{} // one element per goroutine in a system call
}

func (l *systemLister) list(ctx context.Context, path string) (*listing, error) {
	l.places <- struct{}{}
	defer func() { <-l.places }()
	dir, err := os.OpenFile(path, unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	modTime, err := settle(dir)
	if err != nil {
		return nil, err
	}
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	all := len(entries)
	entries = slices.DeleteFunc(entries, func(entry fs.DirEntry) bool { return hidden(entry.Name()) })
	found := &listing{ModTime: modTime, Others: len(entries) < all}
	if err := l.look(ctx, dir, entries, found); err != nil {
		return nil, err
	}
	found.sort()
	return found, nil
}

// hidden reports whether an entry of this name is not part of a data set.
func hidden(name string) bool { return strings.HasPrefix(name, ".") || name == ManifestName }

// look adds all entries of the folder dir to found, in chunks, in parallel as far as places allow.
func (l *systemLister) look(
	ctx context.Context, dir *os.File, entries []fs.DirEntry, found *listing,
) (err error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		fd    = int(dir.Fd())
	)
	found.Files = make([]scannedFile, 0, len(entries))
	chunk := func(entries []fs.DirEntry) {
		seen, chunkErr := lookAt(ctx, fd, entries)
		mu.Lock()
		defer mu.Unlock()
		found.Files = append(found.Files, seen.Files...)
		found.Folders = append(found.Folders, seen.Folders...)
		found.Dangling = append(found.Dangling, seen.Dangling...)
		found.Others = found.Others || seen.Others
		if chunkErr != nil && err == nil {
			err = fmt.Errorf("%s/%w", strings.TrimSuffix(dir.Name(), "/"), chunkErr)
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
func lookAt(ctx context.Context, fd int, entries []fs.DirEntry) (found listing, err error) {
	if err := context.Cause(ctx); err != nil {
		return listing{}, err
	}
	found.Files = make([]scannedFile, 0, len(entries))
	for _, entry := range entries {
		name, link := entry.Name(), entry.Type() == fs.ModeSymlink
		if entry.IsDir() {
			found.Folders = append(found.Folders, subFolder{Name: name})
			continue
		}
		var st unix.Stat_t
		err := posix.Retry(func() error { return unix.Fstatat(fd, name, &st, 0) })
		switch kind := st.Mode & unix.S_IFMT; {
		case link && isDangling(err):
			found.Dangling = append(found.Dangling, name)
		case err != nil:
			return listing{}, fmt.Errorf("%s: %w", name, err)
		case kind == unix.S_IFREG:
			found.Files = append(found.Files, scannedFile{name, st.Size, st.Mtim.Nano()})
		case kind == unix.S_IFDIR:
			found.Folders = append(found.Folders, subFolder{name, link})
		default:
			found.Others = true
		}
	}
	return found, nil
}

// isDangling reports whether err, of examining a link, means that the link leads nowhere.
func isDangling(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP)
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
