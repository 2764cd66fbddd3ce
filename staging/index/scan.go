package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rankpool/staging/dataset"
)

// concurrency is how many requests a rank has in flight: enough to hide most of a metadata server's
// latency, few enough to be gentle to it.
const concurrency = 16

// statChunk is how many files a goroutine examines at a time. Measured on tmpfs: a scan takes 4 µs
// of a core per file, so a chunk takes about 1 ms, far more than handing it to a goroutine.
const statChunk = 256

// ScanOptions controls Scan. The zero value is ready to use.
type ScanOptions struct {
	// called with the number of files found so far, never by two goroutines at a time
	Progress func(files int64)
	// called with a sentence about files and links that are not samples
	Notice func(sentence string)
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group *Group

	// Only has patterns (of path.Match) of the names of files, or of their paths below the root if it
	// has a slash. Files that match none are left out. nil: none is.
	Only []string
	// WholeFiles makes a tar shard or a TFRecord file one sample like any other file.
	// Without it they hold many samples (see package shards), and the scan reads their headers.
	WholeFiles bool

	lister   lister // for tests; nil: the system's
	requests int    // for tests; 0: concurrency
}

// Scan indexes the data set in folder root: its class folders and, in them at any depth, all
// regular files.
//
// Hidden files and folders (their name starts with '.') and anything that is neither a file nor a
// folder are left out. So are, with a Notice, links that lead nowhere, files beside class folders
// that hold at least as many, in class folders of images whatever is no image, and files that
// describe shards or the other files of class folders (README, .txt, .json). Symbolic links are
// followed. A root that contains files and no folder is a data set with the single class ""; so
// is one with shards whose folders hold no samples. The manifest's root is root made absolute,
// without resolving links. The order of the samples depends on names only (see Manifest), not
// on the ranks of the Group.
//
// Errors: a folder that cannot be read, a file that cannot be examined, a link to a folder that
// contains it, a shard without class numbers beside class folders, or more files than they hold, a
// compressed shard, a folder that changes while the scan runs, a tree without samples, and ctx's
// end. Each names the path; there is never a partial manifest.
func Scan(ctx context.Context, root string, opt ScanOptions) (*dataset.Manifest, error) {
	m, _, err := scanTree(ctx, root, opt)
	return m, err
}

// scanTree is Scan, and returns how many links lead nowhere.
func scanTree(ctx context.Context, root string, opt ScanOptions) (
	m *dataset.Manifest, dangling int, err error,
) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, 0, fmt.Errorf("staging: %w", err)
	}
	s := newScanner(ctx, abs, opt)
	defer s.stop(nil)
	if err := s.walk(); err != nil {
		return nil, 0, fmt.Errorf("staging: scan of %s: %w", abs, err)
	}
	m, err = s.manifest()
	return m, s.dangling, err
}

// A scanner is one scan in progress.
type scanner struct {
	root    string
	ctx     context.Context // cancelled with the first error
	stop    context.CancelCauseFunc
	workers []lister // one per goroutine
	opt     ScanOptions

	dangling int            // links that lead nowhere
	leftOut  []*scannedFile // files that match no pattern of Only

	mu      sync.Mutex
	changed *sync.Cond       // the queue, or busy
	queue   []*scannedFolder // to be visited; last in, first out, so the queue stays short
	busy    int              // workers visiting a folder
	folders []*scannedFolder // visited
	files   int64            // found in them
}

// A scannedFolder is a folder that a scan visits; parent leads to the root.
type scannedFolder struct {
	path      string // relative to the root
	parent    *scannedFolder
	underLink bool // some ancestor was reached by a link
	*listing

	identify sync.Once
	id       fs.FileInfo
	idErr    error
}

func newScanner(ctx context.Context, root string, opt ScanOptions) *scanner {
	s := &scanner{root: root, opt: opt, queue: []*scannedFolder{{}}}
	s.changed = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancelCause(ctx)
	local := opt.lister
	if local == nil {
		local = &systemLister{make(chan struct{}, concurrency)}
	}
	s.workers = append(slices.Repeat([]lister{local}, cmp.Or(opt.requests, concurrency)),
		opt.Group.listers()...)
	return s
}

// walk visits every folder, and then checks that none has changed since it was listed. The last
// worker runs on the caller's goroutine.
func (s *scanner) walk() error {
	defer context.AfterFunc(s.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})()
	var group sync.WaitGroup
	for _, l := range s.workers[1:] {
		group.Go(func() { s.work(l) })
	}
	s.work(s.workers[0])
	group.Wait()
	if err := context.Cause(s.ctx); err != nil {
		return err
	}
	return inParallel(s.ctx, len(s.folders), func(i int) error {
		in := s.folders[i]
		err := checkFolderTime(s.root, dataset.Folder{Path: in.path, ModTime: in.ModTime})
		if err != nil {
			return fmt.Errorf("%w: %s", err, stillWritten)
		}
		return nil
	})
}

// stillWritten is the advice for a folder that changes while it is indexed.
const stillWritten = "index the data set when nothing writes to it any more"

// work visits folders with l until there are no more.
func (s *scanner) work(l lister) {
	for in := s.take(); in != nil; in = s.take() {
		if err := s.visit(l, in); err != nil {
			s.stop(err)
		}
		s.mu.Lock()
		if s.busy--; s.busy == 0 {
			s.changed.Broadcast()
		}
		s.mu.Unlock()
	}
}

// take returns a folder to visit, or nil when there are no more.
func (s *scanner) take() *scannedFolder {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == 0 && s.busy > 0 && s.ctx.Err() == nil {
		s.changed.Wait()
	}
	if len(s.queue) == 0 || s.ctx.Err() != nil {
		return nil
	}
	in := s.queue[len(s.queue)-1]
	s.queue = s.queue[:len(s.queue)-1]
	s.busy++
	return in
}

// visit lists the folder in with l, and adds its sub-folders to the queue.
func (s *scanner) visit(l lister, in *scannedFolder) (err error) {
	if err := s.checkLoop(in); err != nil {
		return err
	}
	in.listing, err = l.list(s.ctx, s.abs(in.path))
	if in.path != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)) {
		return fmt.Errorf("%w: %s", err, stillWritten)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.opt.Only) > 0 {
		s.choose(in)
	}
	s.folders = append(s.folders, in)
	s.files += int64(len(in.Files))
	for _, sub := range in.Folders {
		s.queue = append(s.queue, &scannedFolder{
			path: path.Join(in.path, sub.Name), parent: in, underLink: in.underLink || sub.Link,
		})
	}
	if len(in.Folders) > 0 {
		s.changed.Broadcast()
	}
	if s.opt.Progress != nil && len(in.Files) > 0 {
		s.opt.Progress(s.files)
	}
	return nil
}

// choose leaves out the files of a folder that match no pattern of Only.
func (s *scanner) choose(in *scannedFolder) {
	in.Files = slices.DeleteFunc(in.Files, func(file scannedFile) bool {
		if slices.ContainsFunc(s.opt.Only, func(pattern string) bool {
			name := file.Name
			if strings.Contains(pattern, "/") {
				name = path.Join(in.path, name)
			}
			matched, _ := path.Match(pattern, name) // its only error is a bad pattern
			return matched
		}) {
			return false
		}
		in.Others, s.leftOut = true, append(s.leftOut, &file)
		return true
	})
}

// checkLoop returns an error if in is one of its own ancestors, which only a link can cause.
// Folders are identified on this machine: other ranks may have another device number for the same
// file system.
func (s *scanner) checkLoop(in *scannedFolder) error {
	if !in.underLink {
		return nil
	}
	if err := s.identify(in); err != nil {
		return err
	}
	for up := in.parent; up != nil; up = up.parent {
		if err := s.identify(up); err != nil {
			return err
		}
		if os.SameFile(up.id, in.id) {
			return fmt.Errorf("%s leads back to %s, so the tree is infinite", s.abs(in.path), s.abs(up.path))
		}
	}
	return nil
}

func (s *scanner) identify(in *scannedFolder) error {
	in.identify.Do(func() { in.id, in.idErr = os.Stat(s.abs(in.path)) })
	return in.idErr
}

func (s *scanner) abs(path string) string { return filepath.Join(s.root, path) }
