package copier

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
)

// LinkPolicy says what becomes of symbolic links.
type LinkPolicy string

// The policies: a link with the same text, what it leads to in its place, or nothing.
const (
	CopyLinks   LinkPolicy = "copy"
	FollowLinks LinkPolicy = "follow"
	SkipLinks   LinkPolicy = "skip"
)

// WalkOptions says how to walk.
type WalkOptions struct {
	Links       LinkPolicy // "": CopyLinks
	Concurrency int        // requests under way at a time; 0: 16
	// told the number of items found so far, never by two goroutines at a time
	Progress func(items int64)
}

// Walk makes the plan of all of the folder root (absolute): folders, files, and links by policy. A
// root that is a file is a plan of that file alone.
//
// What cannot be looked at, and what is neither file, folder nor link, becomes a failure of the
// plan. Errors: root itself, and ctx's end.
func Walk(ctx context.Context, fsys FileSystem, root string, opt WalkOptions) (*Plan, error) {
	w := newWalker(ctx, fsys, root, opt)
	info, err := fsys.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("copier: the source: %w", err)
	}
	if info.Kind == Regular {
		w.root = path.Dir(root)
		w.add(itemOf(path.Base(root), info), info.Links)
		return w.plan()
	}
	if _, err := fsys.ReadNames(root); err != nil {
		return nil, fmt.Errorf("copier: the source: %w", err)
	}
	w.add(itemOf("", info), 1)
	w.folder("", info, nil)
	w.running.Wait()
	return w.plan()
}

// A Selected is a file of a part of the data set.
type Selected struct {
	Path    string // relative to the root
	Indexed bool   // by an index that follows links and says the following
	Size    int64  // in bytes; -1: not known
	ModTime int64  // in nanoseconds since 1970
	Sum     uint64 // XXH3 of the file; 0: not known
}

// Select makes the plan of a part of the folder root (absolute): the named files, all of the named
// folders, and the folders above them. A file that has another size or time than was said, or is
// missing, becomes a failure. Errors: root itself, and ctx's end.
func Select(ctx context.Context, fsys FileSystem, root string, part []Selected, opt WalkOptions) (
	*Plan, error,
) {
	w := newWalker(ctx, fsys, root, opt)
	info, err := fsys.Stat(root)
	if err != nil {
		return nil, fmt.Errorf("copier: the source: %w", err)
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

// A walker is one walk under way.
type walker struct {
	ctx     context.Context
	fsys    FileSystem
	root    string
	opt     WalkOptions
	places  chan struct{} // one element a goroutine beyond the first
	running sync.WaitGroup

	mu     sync.Mutex
	items  []Item
	links  map[uint64]uint64 // names of the inodes that have several
	failed []Failure
}

// above leads from a folder to the root, for finding loops.
type above struct {
	dev, inode uint64
	parent     *above
}

func newWalker(ctx context.Context, fsys FileSystem, root string, opt WalkOptions) *walker {
	if opt.Links == "" {
		opt.Links = CopyLinks
	}
	if opt.Concurrency <= 0 {
		opt.Concurrency = 16
	}
	return &walker{
		ctx: ctx, fsys: fsys, root: root, opt: opt,
		places: make(chan struct{}, opt.Concurrency-1), links: map[uint64]uint64{},
	}
}

func (w *walker) plan() (*Plan, error) {
	if err := context.Cause(w.ctx); err != nil {
		return nil, fmt.Errorf("copier: walk of %s: %w", w.root, err)
	}
	return newPlan(w.root, w.items, w.links, w.failed), nil
}

// spawn runs f on a goroutine of its own when there is a place for one, else right here.
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

// folder looks at all that is in a folder.
func (w *walker) folder(rel string, info Info, up *above) {
	if w.ctx.Err() != nil {
		return
	}
	for a := up; a != nil; a = a.parent {
		if a.dev == info.Dev && a.inode == info.Inode {
			w.fail(rel, "leads back to a folder above it, so the tree has no end")
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

// name looks at one name. want is what is known of a selected one; alone leaves out what is below a
// folder.
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
		w.fail(rel, "cannot be looked at: "+reasonOf(err))
		return
	}
	item := itemOf(rel, info)
	if indexed {
		item.Sum = want.Sum
	}
	switch {
	case indexed && info.Kind != Regular:
		w.fail(rel, "is no file any more; index the data set again")
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
			w.fail(rel, "cannot be looked at: "+reasonOf(err))
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
