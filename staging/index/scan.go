package index

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"rankpool/staging/dataset"
)

// DefaultScanConcurrency is how many requests a scan has in flight by default: enough to hide most
// of a metadata server's latency, few enough to be gentle to it.
const DefaultScanConcurrency = 16

// statChunk is how many files a goroutine examines at a time. Measured on tmpfs: a scan takes 4 µs
// of a core per file, so a chunk takes about 1 ms, far more than handing it to a goroutine.
const statChunk = 256

// scanPasses is how often a scan visits the folders, at most, until none has changed since it was
// listed: once to list them, once to see that none has changed, and a few times more for a data set
// into which somebody is still moving the last files.
const scanPasses = 5

// ScanOptions controls Scan. The zero value is ready to use.
type ScanOptions struct {
	// requests in flight per rank; 0: DefaultScanConcurrency
	Concurrency int
	// called with the number of files found so far, never by two goroutines at a time
	Progress func(files int64)
	// called with a sentence about files and links that are not samples
	Notice func(sentence string)
	// the ranks that share the work; this process is rank 0. nil: it works alone
	Group *Group

	// Sync asks the file system's servers for every file's size and time. Without it a file system may
	// answer from this machine's caches, and Lustre with a size that its metadata server updates
	// lazily; that saves a request per file, and is correct for files that were written some time ago.
	// A read checks size and time in any case.
	Sync bool

	// WholeFiles makes a tar shard, a TFRecord file or an array (.npy) one sample like any other file.
	// Without it they hold many samples (see package shards), and the scan reads their headers.
	WholeFiles bool

	lister lister // for tests; nil: the system's
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
// without resolving links. The order of the samples depends on names only (see Manifest), neither
// on Concurrency nor on the ranks of the Group.
//
// A folder that changes while the scan runs is listed again. At the end no folder has changed since
// it was listed.
//
// Errors: a folder that cannot be read, a file that cannot be examined, a link to a folder that
// contains it, a shard without class numbers beside class folders, or more files than they hold, a
// compressed shard, a folder that keeps changing, a tree without samples, and ctx's end. Each names
// the path; there is never a partial manifest.
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
	if err := s.passes(); err != nil {
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
	known   map[string]*listing // by path, from the previous pass

	dangling int // links that lead nowhere

	mu      sync.Mutex
	changed *sync.Cond       // the queue, or busy
	queue   []*scannedFolder // to be visited; last in, first out, so the queue stays short
	busy    int              // workers visiting a folder
	folders []*scannedFolder // visited
	files   int64            // found in them
	first   bool             // this is the first pass
	fresh   string           // a folder that was listed in this pass; "" if none
	gone    error            // something disappeared in this pass
}

// A scannedFolder is a folder that a scan visits; parent leads to the root.
type scannedFolder struct {
	path      string // relative to the root
	parent    *scannedFolder
	underLink bool // some ancestor was reached by a link
	*listing

	identify sync.Once
	id       folderID
	idErr    error
}

func newScanner(ctx context.Context, root string, opt ScanOptions) *scanner {
	opt.Concurrency = cmp.Or(opt.Concurrency, DefaultScanConcurrency)
	s := &scanner{root: root, opt: opt}
	s.changed = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancelCause(ctx)
	local := opt.lister
	if local == nil {
		local = newSystemLister(opt.Concurrency, opt.Sync)
	}
	s.workers = append(slices.Repeat([]lister{local}, opt.Concurrency),
		opt.Group.listers(opt.Concurrency, opt.Sync)...)
	return s
}

// passes visits the tree until nothing in it has changed since it was listed.
func (s *scanner) passes() error {
	for i := range scanPasses {
		s.first = i == 0
		s.pass()
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		if s.fresh == "" && s.gone == nil {
			return nil
		}
		s.known = make(map[string]*listing, len(s.folders))
		for _, in := range s.folders {
			s.known[in.path] = in.listing
		}
	}
	if s.gone != nil {
		return s.gone
	}
	return fmt.Errorf("%s keeps changing: index it when nothing writes to it any more", s.fresh)
}

// pass visits every folder once. The last worker runs on the caller's goroutine.
func (s *scanner) pass() {
	s.queue, s.folders, s.files, s.fresh, s.gone = []*scannedFolder{{}}, nil, 0, "", nil
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
}

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

// take returns a folder to visit, or nil when the pass is over.
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

// visit lists the folder in with l, unless it is known and has not changed.
func (s *scanner) visit(l lister, in *scannedFolder) error {
	err := s.checkLoop(in)
	known := s.known[in.path]
	if err == nil {
		var modTime *int64
		if known != nil {
			modTime = &known.ModTime
		}
		in.listing, err = l.list(s.ctx, s.abs(in.path), modTime)
	}
	if isVanished(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gone = err
		return nil
	}
	if err != nil {
		return err
	}
	fresh := in.listing != nil
	if !fresh {
		in.listing = known
	}
	s.found(in, fresh)
	return nil
}

// found adds a folder to the result, and its sub-folders to the queue.
func (s *scanner) found(in *scannedFolder, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folders = append(s.folders, in)
	s.files += int64(len(in.Files))
	if fresh {
		s.fresh = s.abs(in.path)
	}
	for _, sub := range in.Folders {
		path := sub.Name
		if in.path != "" {
			path = in.path + "/" + sub.Name
		}
		s.queue = append(s.queue,
			&scannedFolder{path: path, parent: in, underLink: in.underLink || sub.Link})
	}
	if len(in.Folders) > 0 {
		s.changed.Broadcast()
	}
	if s.first && s.opt.Progress != nil && len(in.Files) > 0 {
		s.opt.Progress(s.files)
	}
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
		if up.id == in.id {
			return fmt.Errorf("%s leads back to %s, so the tree is infinite", s.abs(in.path), s.abs(up.path))
		}
	}
	return nil
}

func (s *scanner) identify(in *scannedFolder) error {
	in.identify.Do(func() { in.id, _, in.idErr = statFolder(s.abs(in.path)) })
	return in.idErr
}

func (s *scanner) abs(path string) string { return filepath.Join(s.root, path) }
