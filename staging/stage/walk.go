package stage

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
)

// LinkPolicy determines how symbolic links are staged.
type LinkPolicy string

// The policies: copy the link, replace it by its target, or skip it.
const (
	CopyLinks   LinkPolicy = "copy"
	FollowLinks LinkPolicy = "follow"
	SkipLinks   LinkPolicy = "skip"
)

// WalkOptions configures a walk.
type WalkOptions struct {
	Links       LinkPolicy // "": CopyLinks
	Concurrency int        // requests in flight; 0: 16
	// called with the number of items found so far, never by two goroutines at a time
	Progress func(items int64)
}

// Walk makes the plan of everything in the folder root (absolute): folders, files, and links by
// policy. If root is a file, the plan holds only that file.
//
// What cannot be examined, and what is neither a file, a folder nor a link, becomes a failure of
// the plan. Errors: root itself cannot be examined, ctx ends.
func Walk(ctx context.Context, fsys FileSystem, root string, opt WalkOptions) (*Plan, error) {
	w := newWalker(ctx, fsys, root, opt)
	info, err := fsys.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	if info.Kind == Regular {
		w.root = path.Dir(root)
		w.add(itemOf(path.Base(root), info), info.Links)
		return w.plan()
	}
	if _, err := fsys.ReadNames(root); err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	w.add(itemOf("", info), 1)
	w.folder("", info, nil)
	w.running.Wait()
	return w.plan()
}

// A Selected is a file of a part of the data set.
type Selected struct {
	Path    string // relative to the root
	Indexed bool   // from an index that follows links and has the fields below
	Size    int64  // in bytes; -1: unknown
	ModTime int64  // in nanoseconds since 1970
	Sum     uint64 // XXH3 of the file; 0: unknown
}

// Select makes the plan of a part of the folder root (absolute): the named files, everything in the
// named folders, and the folders above them. A file that is missing, or has another size or time
// than named, becomes a failure. Errors: root itself cannot be examined, ctx ends.
func Select(ctx context.Context, fsys FileSystem, root string, part []Selected, opt WalkOptions) (
	*Plan, error,
) {
	w := newWalker(ctx, fsys, root, opt)
	info, err := fsys.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	w.add(itemOf("", info), 1)
	above := map[string]bool{"": true}
	for _, s := range part {
		for dir := parent(s.Path); !above[dir]; dir = parent(dir) {
			above[dir] = true
			w.spawn(func() { w.name(dir, &Selected{Path: dir}, nil, true) })
		}
		w.spawn(func() { w.name(s.Path, &s, nil, false) })
	}
	w.running.Wait()
	return w.plan()
}

// A walker is one walk in progress.
type walker struct {
	ctx     context.Context
	fsys    FileSystem
	root    string
	opt     WalkOptions
	places  chan struct{} // one element per goroutine beyond the first
	running sync.WaitGroup

	mu     sync.Mutex
	items  []Item
	links  map[uint64]uint64 // inodes with several names
	failed []Failure
}

// above leads from a folder to the root, to find loops.
type above struct {
	dev, inode uint64
	parent     *above
}

func newWalker(ctx context.Context, fsys FileSystem, root string, opt WalkOptions) *walker {
	return &walker{
		ctx: ctx, fsys: fsys, root: root, opt: opt,
		places: make(chan struct{}, cmp.Or(opt.Concurrency, 16)-1), links: map[uint64]uint64{},
	}
}

func (w *walker) plan() (*Plan, error) {
	if err := context.Cause(w.ctx); err != nil {
		return nil, fmt.Errorf("stage: walk of %s: %w", w.root, err)
	}
	return newPlan(w.root, w.items, w.links, w.failed), nil
}

// spawn runs f on another goroutine if there is a place for one, otherwise on this one.
func (w *walker) spawn(f func()) {
	select {
	case w.places <- struct{}{}:
		w.running.Go(func() {
			defer func() { <-w.places }()
			f()
		})
	default:
		f()
	}
}

func (w *walker) add(item Item, links uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items = append(w.items, item)
	if links > 1 {
		w.links[item.Inode] = links
	}
	if w.opt.Progress != nil {
		w.opt.Progress(int64(len(w.items)))
	}
}

func (w *walker) fail(rel, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, Failure{Path: rel, Reason: reason})
}

// folder examines everything in a folder.
func (w *walker) folder(rel string, info Info, up *above) {
	if w.ctx.Err() != nil {
		return
	}
	for a := up; a != nil; a = a.parent {
		if a.dev == info.Dev && a.inode == info.Inode {
			w.fail(rel, "leads back to a folder above it, so the tree is infinite")
			return
		}
	}
	names, err := w.fsys.ReadNames(join(w.root, rel))
	if err != nil {
		w.fail(rel, "cannot be listed: "+reasonOf(err))
		return
	}
	here := &above{info.Dev, info.Inode, up}
	for _, name := range names {
		if isOurs(rel, name) {
			continue
		}
		sub := strings.TrimPrefix(rel+"/"+name, "/")
		w.spawn(func() { w.name(sub, nil, here, false) })
	}
}

// name examines one name. want is what is known about a selected name; alone leaves out what is
// below a folder.
func (w *walker) name(rel string, want *Selected, up *above, alone bool) {
	if w.ctx.Err() != nil {
		return
	}
	full := join(w.root, rel)
	look := w.fsys.Lstat
	indexed := want != nil && want.Indexed
	if alone || indexed {
		look = w.fsys.Stat
	}
	info, err := look(full)
	if err == nil && info.Kind == Symlink && w.opt.Links == FollowLinks {
		info, err = w.fsys.Stat(full)
	}
	if err != nil {
		w.fail(rel, "cannot be examined: "+reasonOf(err))
		return
	}
	item := itemOf(rel, info)
	if indexed {
		item.Sum = want.Sum
	}
	switch {
	case indexed && info.Kind != Regular:
		w.fail(rel, "is no longer a file; index the data set again")
	case indexed && want.Size >= 0 && info.Size != want.Size:
		w.fail(rel, fmt.Sprintf("has %d bytes, its index says %d; index the data set again", info.Size,
			want.Size))
	case indexed && info.ModTime != want.ModTime:
		w.fail(rel, "was modified since it was indexed; index the data set again")
	case info.Kind == Other:
		w.fail(rel, "is neither a file, a folder nor a link, and cannot be staged")
	case info.Kind == Symlink && w.opt.Links == SkipLinks:
	case info.Kind == Symlink:
		if item.Text, err = w.fsys.Readlink(full); err != nil {
			w.fail(rel, "cannot be examined: "+reasonOf(err))
			return
		}
		w.add(item, 1)
	case info.Kind == Folder:
		w.add(item, 1)
		if !alone {
			w.folder(rel, info, up)
		}
	default:
		w.add(item, info.Links)
	}
}
