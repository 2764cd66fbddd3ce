package dataset

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/staging/posix"
)

// Changes is the difference between a data set and an earlier manifest of it. Samples with the same
// path and offset are the same.
type Changes struct {
	Added, Removed, Changed int // numbers of samples
	// The first few of each, by path: paths relative to the root, quoted if they are not printable;
	// changed samples are followed by what changed, in brackets.
	AddedNames, RemovedNames, ChangedNames []string

	shown int
}

// Any reports whether anything changed.
func (c *Changes) Any() bool { return c.Added+c.Removed+c.Changed > 0 }

// String returns the numbers in words: "2 samples added, 1 removed, 0 changed".
func (c *Changes) String() string {
	samples := "samples"
	if c.Added == 1 {
		samples = "sample"
	}
	return fmt.Sprintf("%d %s added, %d removed, %d changed", c.Added, samples, c.Removed, c.Changed)
}

// Compare returns how after differs from before; it names at most shown changes of each kind. It
// ignores the roots. A sample has changed if its size, its modification time or the places of its
// members differ, or its checksum if both manifests have one.
func Compare(before, after *Manifest, shown int) *Changes {
	c := &Changes{shown: shown}
	old, now := before.byPath(), after.byPath()
	for len(old) > 0 || len(now) > 0 {
		order := 0
		switch {
		case len(old) == 0:
			order = 1
		case len(now) == 0:
			order = -1
		default:
			order = comparePlaces(before, old[0], after, now[0])
		}
		switch {
		case order < 0:
			c.note(&c.Removed, &c.RemovedNames, func() string { return printable(before.RelPath(old[0])) })
		case order > 0:
			c.note(&c.Added, &c.AddedNames, func() string { return printable(after.RelPath(now[0])) })
		default:
			if what := compareSample(before, old[0], after, now[0]); what != "" {
				c.note(&c.Changed, &c.ChangedNames, func() string {
					return printable(after.RelPath(now[0])) + " (" + what + ")"
				})
			}
		}
		if order <= 0 {
			old = old[1:]
		}
		if order >= 0 {
			now = now[1:]
		}
	}
	return c
}

// note counts a change, and names it if it is one of the first.
func (c *Changes) note(count *int, names *[]string, name func() string) {
	if *count++; *count <= c.shown {
		*names = append(*names, name())
	}
}

// byPath returns the ids in the order of comparePlaces, which is the order of ids unless another
// program made the manifest.
func (m *Manifest) byPath() []draw.SampleID {
	ids := make([]draw.SampleID, m.Len())
	for i := range ids {
		ids[i] = draw.SampleID(i)
	}
	order := func(a, b draw.SampleID) int { return comparePlaces(m, a, m, b) }
	if !slices.IsSortedFunc(ids, order) {
		slices.SortStableFunc(ids, order)
	}
	return ids
}

// comparePlaces orders samples by folder, name and offset.
func comparePlaces(a *Manifest, x draw.SampleID, b *Manifest, y draw.SampleID) int {
	if p, q := a.folders[a.inFolder.at(int(x))].Path, b.folders[b.inFolder.at(int(y))].Path; p != q {
		return CompareFolders(p, q)
	}
	if p, q := a.name(x), b.name(y); !bytes.Equal(p, q) {
		return CompareNames(string(p), string(q))
	}
	return cmp.Compare(a.Offset(x), b.Offset(y))
}

// compareSample describes the difference between two versions of a sample; "" if there is none.
func compareSample(a *Manifest, x draw.SampleID, b *Manifest, y draw.SampleID) string {
	was, wasKnown := a.Checksum(x)
	is, isKnown := b.Checksum(y)
	switch {
	case a.Size(x) != b.Size(y):
		return fmt.Sprintf("%d bytes, were %d", b.Size(y), a.Size(x))
	case a.ModTime(x) != b.ModTime(y):
		return fmt.Sprintf("modified at %s, was %s", TimeText(b.ModTime(y)), TimeText(a.ModTime(x)))
	case wasKnown && isKnown && was != is:
		return "checksum"
	case (a.HasMembers() || b.HasMembers()) && !slices.Equal(a.Members(x), b.Members(y)):
		return "members"
	}
	return ""
}

// printable returns a path, quoted if it would not print as one word on a line.
func printable(path string) string {
	quoted := fmt.Sprintf("%q", path)
	if quoted[1:len(quoted)-1] == path && !strings.HasPrefix(path, " ") &&
		!strings.HasSuffix(path, " ") {
		return path
	}
	return quoted
}

// TimeText formats a modification time, in nanoseconds since 1970, for an error.
func TimeText(modTime int64) string {
	t := posix.Timespec(modTime)
	return time.Unix(t.Unix()).UTC().Format(time.RFC3339Nano)
}
