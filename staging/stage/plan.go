package stage

import (
	"cmp"
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
	Path string // relative to the root, in the file system's bytes; "" is the root itself
	Info
	Sum  uint64 // XXH3 from an index; 0: unknown
	Text string // of a symbolic link
}

// An Info describes a name.
type Info struct {
	Kind    Kind
	Mode    uint32 // permission bits, setuid, setgid, sticky
	Size    int64  // bytes; 0 unless Kind is Regular
	ModTime int64  // nanoseconds since 1970
	Inode   uint64 // number
}

// Kind is the type of a file.
type Kind uint8

// The kinds. Items of kind Other cannot be staged: sockets, pipes, devices.
const (
	Regular Kind = iota
	Folder
	Symlink
	Other
)

// A Failure is an item that was not staged, and why, in words that follow the path.
type Failure struct {
	Path   string `json:"path"` // relative to the source
	Rank   int    `json:"rank"` // where it failed; 0 for what could not be examined
	Reason string `json:"reason"`
}

// statePrefix begins the names that staging and packing use for themselves. They are never staged.
const statePrefix = ".rankpool-"

func isOurs(name string) bool { return strings.HasPrefix(name, statePrefix) }

// newPlan sorts the items, and drops repeated paths.
func newPlan(root string, items []Item, failed []Failure) *Plan {
	slices.SortFunc(items, func(a, b Item) int { return cmp.Compare(a.Path, b.Path) })
	items = slices.CompactFunc(items, func(a, b Item) bool { return a.Path == b.Path })
	slices.SortStableFunc(failed, func(a, b Failure) int { return cmp.Compare(a.Path, b.Path) })
	return &Plan{Root: root, Items: items, Failed: failed}
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
