package stage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// Requests is how many calls a rank has in flight at the source: enough to hide most of a metadata
// server's latency.
const Requests = 32

// walkChunk is how many names of a folder a goroutine examines in a row.
const walkChunk = 64

// Walk makes the plan of everything in the folder root (absolute): folders, files, and symbolic
// links. If root is a file, the plan holds that file and its folder. progress is called with the
// number of items found so far, never by two goroutines at a time.
//
// What cannot be examined, and what is neither a file, a folder nor a link, becomes a failure of
// the plan. Errors: root itself cannot be examined, ctx ends.
func Walk(ctx context.Context, root string, progress func(items int64)) (*Plan, error) {
	plan, err := Select(ctx, root, []Selected{{}}, progress)
	if !errors.Is(err, unix.ENOTDIR) {
		return plan, err
	}
	if root, err = filepath.EvalSymlinks(root); err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	return Select(ctx, path.Dir(root), []Selected{{Path: path.Base(root)}}, progress)
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
// than named, becomes a failure. Errors and progress are as for Walk.
func Select(ctx context.Context, root string, part []Selected, progress func(items int64)) (
	*Plan, error,
) {
	w := newWalker(ctx, root, progress)
	defer w.tree.close()
	i, err := w.tree.look("", true, true)
	if err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	w.add(itemOf("", i))
	above := map[string]bool{"": true}
	for chunk := range slices.Chunk(part, walkChunk) {
		var folders []string
		for _, s := range chunk {
			for dir := parent(s.Path); !above[dir]; dir = parent(dir) {
				above[dir] = true
				folders = append(folders, dir)
			}
		}
		w.spawn(func() {
			for _, dir := range folders {
				w.name(dir, &Selected{Path: dir}, true)
			}
			for _, s := range chunk {
				w.name(s.Path, &s, false)
			}
		})
	}
	w.running.Wait()
	return w.plan()
}

// A walker is one walk in progress.
type walker struct {
	ctx      context.Context
	tree     *tree
	progress func(items int64)
	places   chan struct{} // one element per goroutine beyond the first
	running  sync.WaitGroup

	mu     sync.Mutex
	items  []Item
	failed []Failure
}

func newWalker(ctx context.Context, root string, progress func(items int64)) *walker {
	return &walker{
		ctx: ctx, tree: newTree(root, nil), progress: progress,
		places: make(chan struct{}, Requests-1),
	}
}

func (w *walker) plan() (*Plan, error) {
	if err := context.Cause(w.ctx); err != nil {
		return nil, fmt.Errorf("stage: walk of %s: %w", w.tree.root, err)
	}
	return newPlan(w.tree.root, w.items, w.failed), nil
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

func (w *walker) add(item Item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.items = append(w.items, item)
	if w.progress != nil {
		w.progress(int64(len(w.items)))
	}
}

func (w *walker) fail(rel, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, Failure{Path: rel, Reason: reason})
}

// folder examines everything in a folder.
func (w *walker) folder(rel string) {
	names, err := w.tree.names(rel)
	if err != nil {
		w.fail(rel, "cannot be listed: "+posix.Reason(err))
		return
	}
	names = slices.DeleteFunc(names, isOurs)
	for chunk := range slices.Chunk(names, walkChunk) {
		w.spawn(func() {
			for _, name := range chunk {
				w.name(strings.TrimPrefix(rel+"/"+name, "/"), nil, false)
			}
		})
	}
}

// name examines one name. want is what is known about a selected name; alone leaves out what is
// below a folder.
func (w *walker) name(rel string, want *Selected, alone bool) {
	if w.ctx.Err() != nil {
		return
	}
	indexed := want != nil && want.Indexed
	i, err := w.tree.look(rel, alone || indexed, true)
	if err != nil {
		w.fail(rel, "cannot be examined: "+posix.Reason(err))
		return
	}
	item := itemOf(rel, i)
	if indexed {
		item.Sum = want.Sum
	}
	switch {
	case indexed && i.kind != Regular:
		w.fail(rel, "is no longer a file; index the data set again")
	case indexed && want.Size >= 0 && i.size != want.Size:
		w.fail(rel, fmt.Sprintf("has %d bytes, its index says %d; index the data set again", i.size,
			want.Size))
	case indexed && i.modTime != want.ModTime:
		w.fail(rel, "was modified since it was indexed; index the data set again")
	case i.kind == Other:
		w.fail(rel, "is neither a file, a folder nor a link, and cannot be staged")
	case i.kind == Symlink:
		if item.Text, err = w.tree.readlink(rel); err != nil {
			w.fail(rel, "cannot be examined: "+posix.Reason(err))
			return
		}
		w.add(item)
	default:
		w.add(item)
		if i.kind == Folder && !alone {
			w.folder(rel)
		}
	}
}
