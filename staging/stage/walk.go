package stage

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
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

	alone bool // of a folder: without what is in it
}

// Select makes the plan of a part of the folder root (absolute): the named files, everything in the
// named folders, and the folders above them. A file that is missing, or has another size or time
// than named, becomes a failure. Errors and progress are as for Walk.
func Select(ctx context.Context, root string, part []Selected, progress func(items int64)) (
	*Plan, error,
) {
	w := &walker{ctx: ctx, tree: &tree{root: root}, progress: progress}
	w.running.SetLimit(Requests - 1)
	defer w.tree.close()
	i, err := w.tree.look("", true, true)
	if err != nil {
		return nil, fmt.Errorf("stage: the source: %w", err)
	}
	w.add(Item{Info: i})
	all, above := slices.Clone(part), map[string]bool{"": true}
	for _, s := range part {
		for dir := parent(s.Path); !above[dir]; dir = parent(dir) {
			above[dir] = true
			all = append(all, Selected{Path: dir, alone: true})
		}
	}
	w.spawn(all)
	_ = w.running.Wait() // what goes wrong is in the plan
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("stage: walk of %s: %w", root, err)
	}
	return newPlan(root, w.items, w.failed), nil
}

// A walker is one walk in progress.
type walker struct {
	ctx      context.Context
	tree     *tree
	progress func(items int64)
	running  errgroup.Group

	mu     sync.Mutex
	items  []Item
	failed []Failure
}

// spawn examines names, on other goroutines as far as there is room.
func (w *walker) spawn(names []Selected) {
	for chunk := range slices.Chunk(names, walkChunk) {
		examine := func() error {
			for i := range chunk {
				w.name(&chunk[i])
			}
			return nil
		}
		if !w.running.TryGo(examine) {
			_ = examine() // never fails
		}
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
	var all []Selected
	for _, name := range names {
		if !isOurs(name) {
			all = append(all, Selected{Path: path.Join(rel, name)})
		}
	}
	w.spawn(all)
}

// name examines one name.
func (w *walker) name(s *Selected) {
	if w.ctx.Err() != nil {
		return
	}
	i, err := w.tree.look(s.Path, s.alone || s.Indexed, true)
	item := Item{Path: s.Path, Info: i, Sum: s.Sum}
	if err == nil && i.Kind == Symlink {
		item.Text, err = w.tree.readlink(s.Path)
	}
	switch {
	case err != nil:
		w.fail(s.Path, "cannot be examined: "+posix.Reason(err))
	case s.Indexed && i.Kind != Regular:
		w.fail(s.Path, "is no longer a regular file; index the data set again")
	case s.Indexed && s.Size >= 0 && i.Size != s.Size:
		w.fail(s.Path, fmt.Sprintf("has %d bytes, its index says %d; index the data set again", i.Size,
			s.Size))
	case s.Indexed && i.ModTime != s.ModTime:
		w.fail(s.Path, "was modified since it was indexed; index the data set again")
	case i.Kind == Other:
		w.fail(s.Path, "is neither a file, a folder nor a link, and cannot be staged")
	default:
		w.add(item)
		if i.Kind == Folder && !s.alone {
			w.folder(s.Path)
		}
	}
}
