package staging

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultScanConcurrency is how many requests a scan has under way when ScanOptions does not say: chosen to hide most
// of a metadata server's latency and still be gentle to it.
const DefaultScanConcurrency = 16

// statChunk is how many files one goroutine looks at before another may take over. Measured on tmpfs: a scan takes
// 4 µs of a core per file, so a chunk is about 1 ms, far more than it costs to hand it to a goroutine.
const statChunk = 256

// ScanOptions says how to scan. The zero value is ready to use.
type ScanOptions struct {
	Concurrency int               // requests under way at a time; 0: DefaultScanConcurrency
	Progress    func(files int64) // told the number of files found so far, never by two goroutines at a time
}

// Scan indexes the data set in folder root: its class folders and, in them at any depth, all regular files.
//
// Hidden files and folders (their name starts with '.') and what is neither file nor folder are left out. Symbolic
// links are followed. A root that holds files and no folder is a data set of the one class ""; the manifest's root
// is root made absolute, links kept. The order of the samples depends on names only (see Manifest).
//
// Errors: a folder that cannot be read, a file that cannot be looked at, a link that leads nowhere or back to a
// folder it lies in, a file beside class folders, a tree without samples, and ctx's end. Each names the path; there
// is never a partial manifest.
func Scan(ctx context.Context, root string, opt ScanOptions) (*Manifest, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("staging: %w", err)
	}
	if opt.Concurrency <= 0 {
		opt.Concurrency = DefaultScanConcurrency
	}
	s := &scanner{root: abs, places: make(chan struct{}, opt.Concurrency-1), progress: opt.Progress}
	s.ctx, s.stop = context.WithCancelCause(ctx)
	defer s.stop(nil)
	s.walk("", nil)
	s.running.Wait()
	if err := context.Cause(s.ctx); err != nil {
		return nil, fmt.Errorf("staging: scan of %s: %w", abs, err)
	}
	return s.manifest()
}

// A scanner is one scan under way.
type scanner struct {
	root     string
	ctx      context.Context // cancelled with the first error
	stop     context.CancelCauseFunc
	places   chan struct{} // one element a goroutine beyond the first
	running  sync.WaitGroup
	progress func(int64)

	mu      sync.Mutex
	folders []*scannedFolder
	files   int64
}

// A scannedFolder is what a scan found in one folder; parent leads to the root, for finding loops.
type scannedFolder struct {
	path     string // relative to the root
	modTime  int64
	dev, ino uint64
	parent   *scannedFolder
	files    []scannedFile // sorted by name
}

type scannedFile struct {
	name          string
	size, modTime int64
}

// spawn runs f on a goroutine of its own when there is a place for one, else right here.
func (s *scanner) spawn(group *sync.WaitGroup, f func()) {
	select {
	case s.places <- struct{}{}:
		group.Go(func() {
			defer func() { <-s.places }()
			f()
		})
	default:
		f()
	}
}

// walk scans the folder path and all below it.
func (s *scanner) walk(path string, parent *scannedFolder) {
	if s.ctx.Err() != nil {
		return
	}
	in := &scannedFolder{path: path, parent: parent}
	folders, err := s.scan(in)
	if err != nil {
		s.stop(err)
		return
	}
	s.found(in)
	for _, name := range folders {
		sub := name
		if path != "" {
			sub = path + "/" + name
		}
		s.spawn(&s.running, func() { s.walk(sub, in) })
	}
}

// scan fills in and returns the names of its sub-folders.
func (s *scanner) scan(in *scannedFolder) (folders []string, err error) {
	dir, err := os.Open(s.abs(in.path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	if err := settle(dir, in); err != nil {
		return nil, err
	}
	for up := in.parent; up != nil; up = up.parent {
		if up.dev == in.dev && up.ino == in.ino {
			return nil, fmt.Errorf("%s leads back to %s, so the tree has no end", s.abs(in.path), s.abs(up.path))
		}
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasPrefix(name, ".") })
	return s.stat(dir, in, names)
}

// stat looks at all names in the folder dir, in chunks side by side.
func (s *scanner) stat(dir *os.File, in *scannedFolder, names []string) (folders []string, err error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		fd    = int(dir.Fd())
	)
	for chunk := range slices.Chunk(names, statChunk) {
		s.spawn(&group, func() {
			files, subs, chunkErr := statAll(s.ctx, fd, chunk)
			mu.Lock()
			defer mu.Unlock()
			in.files, folders = append(in.files, files...), append(folders, subs...)
			if chunkErr != nil && err == nil {
				err = fmt.Errorf("%s/%w", s.abs(in.path), chunkErr)
			}
		})
	}
	group.Wait()
	slices.SortFunc(in.files, func(a, b scannedFile) int { return compareNames(a.name, b.name) })
	return folders, err
}

// statAll looks at names in the folder fd; its error starts with the name.
func statAll(ctx context.Context, fd int, names []string) (files []scannedFile, folders []string, err error) {
	if ctx.Err() != nil {
		return nil, nil, nil // the scan has failed already
	}
	files = make([]scannedFile, 0, len(names))
	var st unix.Stat_t
	for _, name := range names {
		err := retryEINTR(func() error { return unix.Fstatat(fd, name, &st, 0) })
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			files = append(files, scannedFile{name, st.Size, st.Mtim.Nano()})
		case unix.S_IFDIR:
			folders = append(folders, name)
		}
	}
	return files, folders, nil
}

// found adds a folder to the result.
func (s *scanner) found(in *scannedFolder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = append(s.folders, in)
	s.files += int64(len(in.files))
	if s.progress != nil && len(in.files) > 0 {
		s.progress(s.files)
	}
}

func (s *scanner) abs(path string) string { return filepath.Join(s.root, path) }

// manifest puts the folders in order and their files into columns.
func (s *scanner) manifest() (*Manifest, error) {
	slices.SortFunc(s.folders, func(a, b *scannedFolder) int { return compareFolders(a.path, b.path) })
	top := s.folders[0] // the root: "" comes first
	switch {
	case s.files == 0:
		return nil, fmt.Errorf("staging: %s holds no sample", s.root)
	case len(top.files) > 0 && len(s.folders) > 1:
		return nil, fmt.Errorf("staging: %s lies beside class folders and belongs to no class", s.abs(top.files[0].name))
	}
	var nameBytes int64
	for _, in := range s.folders {
		for _, file := range in.files {
			nameBytes += int64(len(file.name))
		}
	}
	if err := checkLimits(s.files, nameBytes); err != nil {
		return nil, fmt.Errorf("staging: %s: %w", s.root, err)
	}
	m := &Manifest{root: s.root}
	m.reserve(int(s.files), int(nameBytes))
	for i, in := range s.folders {
		m.folders = append(m.folders, folder{in.path, in.modTime})
		class := classOf(in.path)
		if n := len(m.classes); (i > 0 || len(s.folders) == 1) && (n == 0 || m.classes[n-1] != class) {
			m.classes = append(m.classes, class)
		}
		for _, file := range in.files {
			m.add(uint32(i), file.name, uint32(len(m.classes)-1), file.size, file.modTime)
		}
	}
	return m, nil
}

// settle waits until a change of the folder from now on must show in its modification time, and notes that time.
//
// Time stamps advance in steps: 1 to 10 ms in Linux (its tick), a second on file systems that keep whole seconds. A
// folder listed in the step in which it changed could change again unseen. So a folder that changed less than a
// step ago is waited for: once, and at most a second.
func settle(dir *os.File, in *scannedFolder) error {
	const tick, coarse = 20 * time.Millisecond, time.Second + 20*time.Millisecond
	var st unix.Stat_t
	look := func() error {
		err := retryEINTR(func() error { return unix.Fstat(int(dir.Fd()), &st) })
		if err == nil && st.Mode&unix.S_IFMT != unix.S_IFDIR {
			err = unix.ENOTDIR
		}
		if err != nil {
			return &fs.PathError{Op: "scan", Path: dir.Name(), Err: err}
		}
		return nil
	}
	if err := look(); err != nil {
		return err
	}
	step := tick
	if st.Mtim.Nsec == 0 {
		step = coarse
	}
	if age := time.Since(time.Unix(st.Mtim.Unix())); age >= 0 && age < step {
		time.Sleep(step - age)
		if err := look(); err != nil {
			return err
		}
	}
	in.modTime, in.dev, in.ino = st.Mtim.Nano(), st.Dev, st.Ino
	return nil
}
