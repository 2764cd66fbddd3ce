package stage

import (
	"cmp"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Plan is what is to be staged: the items in byte order of their paths, so that a folder precedes
// its content. A Plan is immutable.
type Plan struct {
	Root   string // absolute path of the source
	Items  []Item
	Failed []Failure // what could not be examined
}

// An Item is a name of the tree.
type Item struct {
	Path    string // relative to the root, in the file system's bytes; "" is the root itself
	Kind    Kind
	Mode    fs.FileMode
	Size    int64 // bytes; 0 unless Kind is Regular or HardLink
	ModTime int64 // nanoseconds since 1970
	Sparse  bool  // fewer bytes are allocated than Size
	Dev     uint64
	Inode   uint64
	Sum     uint64 // XXH3 from an index; 0: unknown
	Text    string // of a symbolic link
	Primary int32  // of a hard link: the index in Items of the inode's first name
}

// A Failure is an item that was not staged, and why, in words that follow the path.
type Failure struct {
	Path   string // relative to the source
	Rank   int    // where it failed; 0 for what could not be examined
	Reason string
}

// tempPrefix begins the names that staging uses at a destination and removes again; stateName is
// the folder of its state there. Neither is ever staged.
const (
	tempPrefix = ".rankpool-"
	tempSuffix = ".tmp"
	stateName  = ".rankpool"
)

// isOurs reports whether a name in the folder dir (relative to a root) is staging's own.
func isOurs(dir, name string) bool { return dir == "" && name == stateName || isTemp(name) }

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

// smallestSparse is the size in bytes from which files are searched for holes: file systems that
// keep tiny files with their metadata allocate nothing for them.
const smallestSparse = 64 << 10

// itemOf makes an item from the file system's information.
func itemOf(rel string, info Info) Item {
	item := Item{
		Path: rel, Kind: info.Kind, Mode: info.Mode, ModTime: info.ModTime, Dev: info.Dev,
		Inode: info.Inode, Primary: -1,
	}
	if info.Kind == Regular {
		item.Size = info.Size
		item.Sparse = info.Size >= smallestSparse && info.Blocks < info.Size
	}
	return item
}

// newPlan sorts the items, drops repeated paths, and finds the names that share an inode.
func newPlan(root string, items []Item, links map[uint64]uint64, failed []Failure) *Plan {
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Path, b.Path) })
	items = slices.CompactFunc(items, func(a, b Item) bool { return a.Path == b.Path })
	type inode struct{ dev, number uint64 }
	first := map[inode]int32{}
	for i := range items {
		item := &items[i]
		if item.Kind != Regular || links[item.Inode] < 2 {
			continue
		}
		key := inode{item.Dev, item.Inode}
		if p, found := first[key]; found {
			item.Kind, item.Primary = HardLink, p
			continue
		}
		first[key] = int32(i)
	}
	slices.SortStableFunc(failed, func(a, b Failure) int { return cmp.Compare(a.Path, b.Path) })
	return &Plan{Root: root, Items: items, Failed: failed}
}

// join returns the absolute path of rel below root.
func join(root, rel string) string {
	if rel == "" {
		return root
	}
	if root == "/" {
		return root + rel
	}
	return root + "/" + rel
}

// parent returns the folder of a relative path, "" for the root's own entries.
func parent(rel string) string {
	if dir := path.Dir(rel); dir != "." {
		return dir
	}
	return ""
}

// openBytes is how much storage could read in the time that an open takes: 1 ms of a stream of 16
// MB/s, one of the many that a rank has in progress.
const openBytes = 16 << 10

// weight is the cost of an item for balancing: its bytes, and its open.
func (item *Item) weight() int64 { return item.Size + openBytes }
