package slowfs

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Op is a kind of access.
type Op uint8

// The kinds of access; Any, in a rule, is all of them.
const (
	Any Op = iota
	Open
	Read
	List
	Stat
)

var opNames = []string{"", "open", "read", "list", "stat"}

// String returns the name of the kind, "" for Any.
func (op Op) String() string { return opNames[op] }

// UnmarshalText parses a name.
func (op *Op) UnmarshalText(text []byte) error {
	i := slices.Index(opNames, string(text))
	if i < 0 {
		return fmt.Errorf("unknown op %q; use one of open, read, list, stat", text)
	}
	*op = Op(i)
	return nil
}

// access is one request, as rules see it.
type access struct {
	op      Op
	path    string // below the root, without a slash at either end
	targets []int  // that a read touches
	now     time.Duration
}

// rule is a Rule with its state: how often each file met its conditions.
type rule struct {
	Rule
	index int // in the configuration
	seed  uint64
	errno syscall.Errno
	seen  map[string]int
}

func newRule(r Rule, index int, seed uint64) *rule {
	r.Nth = max(1, r.Nth)
	return &rule{
		Rule: r, index: index, seed: seed, errno: errnoOf(r.Error),
		seen: make(map[string]int),
	}
}

// hits reports whether the rule applies to an access, and counts it.
func (r *rule) hits(a access) bool {
	if !r.concerns(a) {
		return false
	}
	r.seen[a.path]++
	nth := r.seen[a.path]
	if nth < r.Nth || r.Times > 0 && nth >= r.Nth+r.Times {
		return false
	}
	return r.Probability == 0 || r.draw(a, nth) < r.Probability
}

// concerns checks everything but the count and chance.
func (r *rule) concerns(a access) bool {
	switch {
	case r.Op != Any && r.Op != a.op,
		a.now < r.After,
		r.During > 0 && a.now >= r.After+r.During,
		len(r.Targets) > 0 && !slices.ContainsFunc(
			a.targets, func(t int) bool { return slices.Contains(r.Targets, t) }):
		return false
	}
	return r.Match == "" || matches(r.Match, a.path)
}

// draw returns a number in [0, 1) that depends only on the seed, the rule, the path, and the number
// of the access of that file: other files and the order of threads do not change it.
func (r *rule) draw(a access, nth int) float64 {
	return rand.New(rand.NewPCG(r.seed^hash(a.path), uint64(r.index)<<32^uint64(nth))).Float64()
}

// matches reports whether a glob matches a path or, if it has no slash, its last name.
func matches(glob, name string) bool {
	if !strings.Contains(glob, "/") {
		name = path.Base(name)
	}
	ok, _ := path.Match(glob, name) // Config.Check has validated the glob.
	return ok
}

// hash spreads paths.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // It never fails.
	// FNV leaves names that differ in the last letter close together; a round of multiply and shift,
	// as in splitmix64, spreads them.
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	return x ^ x>>31
}

// errnoOf returns the error number of a name such as EIO, 0 if there is none.
func errnoOf(name string) syscall.Errno {
	for e := syscall.Errno(1); e < 256; e++ { // Linux has 133.
		if name != "" && unix.ErrnoName(e) == name {
			return e
		}
	}
	return 0
}
