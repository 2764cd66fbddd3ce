package dataset

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/stagingtest"
)

// TestCompareOrder compares manifests in any order, and checks the result against sets of paths.
func TestCompareOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyFiles(t, "before"), anyFiles(t, "after")
		changes := Compare(a, b, 1<<30)
		sizes := func(m *Manifest) map[string]int64 {
			found := map[string]int64{}
			for id := range draw.SampleID(m.Len()) {
				found[m.RelPath(id)] = m.Size(id)
			}
			return found
		}
		var added, removed, changed int
		before, after := sizes(a), sizes(b)
		for path, size := range before {
			if now, found := after[path]; !found {
				removed++
			} else if now != size {
				changed++
			}
		}
		for path := range after {
			if _, found := before[path]; !found {
				added++
			}
		}
		if want := fmt.Sprint(added, removed, changed); fmt.Sprint(
			changes.Added, changes.Removed, changes.Changed) != want ||
			len(changes.AddedNames) != added || len(changes.RemovedNames) != removed ||
			len(changes.ChangedNames) != changed {
			t.Fatalf("%+v, want %s", changes, want)
		}
	})
}

// anyFiles draws a manifest of a few files in folders, each file once, in any order.
func anyFiles(t *rapid.T, label string) *Manifest {
	m := &Manifest{
		root: "/" + label, classes: []string{"c"},
		folders: []Folder{{"b", 1}, {"a/x", 1}, {"a-b", 1}, {"a", 1}},
	}
	type place struct {
		in   uint32
		name string
	}
	places := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) place {
		return place{
			rapid.Uint32Range(0, 3).Draw(t, "in"),
			rapid.SampledFrom([]string{"1", "2", "\xff", "ä", "a"}).Draw(t, "name"),
		}
	}), 1, 12, rapid.ID).Draw(t, label)
	for _, p := range places {
		m.add(p.in, p.name, 0, rapid.Int64Range(0, 1).Draw(t, "size"), 7)
	}
	return m
}

// TestIdentityIsOfTheData checks that a data set that was copied, and each kind of manifest of it,
// has the same digest.
func TestIdentityIsOfTheData(t *testing.T) {
	files := []string{"a/1.png", "a/deep/2.png", "b/1.png", "empty/"}
	m := listed(files...)
	id := m.Identity()

	other := listed(files...)
	other.modTimes.wide[0]++
	copied := other.Identity()
	if copied.Differs(id) || copied.Times == id.Times {
		t.Errorf("a copy has %v, the data set %v", copied, id)
	}
	parquet, index := filepath.Join(t.TempDir(), "m.parquet"), filepath.Join(t.TempDir(), "index")
	stagingtest.Must(t, WriteParquet(parquet, m))
	stagingtest.Must(t, WriteIndex(index, m))
	fromParquet, err := ReadParquet(parquet)
	stagingtest.Must(t, err)
	fromIndex, err := OpenIndex(index)
	stagingtest.Must(t, err)
	stagingtest.Must(t, fromIndex.CheckIdentity())
	for _, other := range []*Manifest{fromParquet, fromIndex, m.WithRoot("/elsewhere")} {
		if other.Identity() != id {
			t.Errorf("%v, want %v", other.Identity(), id)
		}
	}
	summed := m.WithChecksums([]uint64{1, 2, 3})
	if id := summed.Identity(); id.Differs(m.Identity()) ||
		!id.Differs(m.WithChecksums([]uint64{1, 2, 4}).Identity()) {
		t.Error("checksums count where both manifests have them, and only there")
	}
}

// TestDifferencesAreNamed checks that every difference that training could see is detected and
// named.
func TestDifferencesAreNamed(t *testing.T) {
	files := []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png"}
	m := listed(files...)
	parts := func(offsets ...int64) *Manifest {
		other := *m
		other.setParts(offsets...)
		return &other
	}
	grown := listed(files...)
	grown.sizes.wide[1] = 18
	for _, c := range []struct {
		there *Manifest
		want  string
	}{
		{listed("a/1.png", "b/1.png", "b/2.png"), "lacks a/2.png"},
		{listed("a/1.png", "a/2.png", "b/1.png"), "lacks b/2.png"},
		{listed(append(files, "a/1a.png")...), "has a/1a.png too"},
		{listed(append(files, "c/1.png")...), "has c/1.png too"},
		{listed("a/1.png", "a/2.png", "c/1.png", "c/2.png"), "lacks b/1.png"},
		{listed(append(files, "c/")...), "has class c too"},
		{listed(append(files, "aa/")...), "has b/1.png with label 2, which should be 1"},
		{grown, "has a/2.png with 18 bytes, which should be 7"},
		{parts(0, 0, 0, 5), "lacks b/2.png"},
		{m.WithChecksums([]uint64{1, 2, 3, 4}), ""},
	} {
		differs := c.there.Identity().Differs(m.Identity())
		what := FirstDifference(m.List(0), c.there.List(0))
		if differs != (c.want != "") || what != c.want {
			t.Errorf("%q (differs: %v), want %q", what, differs, c.want)
		}
	}
	a, b := m.WithChecksums([]uint64{1, 2, 3, 4}), m.WithChecksums([]uint64{1, 2, 7, 4})
	want := "has b/1.png with checksum 0000000000000007, which should be 0000000000000003"
	if what := FirstDifference(a.List(0), b.List(0)); what != want ||
		!a.Identity().Differs(b.Identity()) {
		t.Errorf("%q, want %q", what, want)
	}
}

// TestBlocksFindTheDifference checks the first block that differs, in data sets of several blocks.
func TestBlocksFindTheDifference(t *testing.T) {
	const n = 3*blockSamples - 1
	build := func(n int, edit func(i int, s *Sample)) *Manifest {
		m, err := Build("/data", []string{"a", "b"}, n, func(i int) Sample {
			s := Sample{Path: fmt.Sprintf("a/%06d", i), Size: int64(i)}
			edit(i, &s)
			return s
		})
		stagingtest.Must(t, err)
		return m
	}
	m := build(n, func(int, *Sample) {})
	for _, c := range []struct {
		there *Manifest
		block int
		want  string
	}{
		{
			build(n, func(i int, s *Sample) { s.Size += int64(i / 8000) }), 1,
			"has a/008000 with 8001 bytes, which should be 8000",
		},
		{
			build(n, func(i int, s *Sample) { s.Label = i / (n - 1) }), 2,
			"has a/012286 with label 1, which should be 0",
		},
		{build(n-1, func(int, *Sample) {}), 2, "lacks a/012286"},
		{build(blockSamples, func(int, *Sample) {}), 1, "lacks a/004096"},
		{build(n+2, func(int, *Sample) {}), 2, "has a/012287 too"},
	} {
		block := FirstBlock(m.BlockDigests(), c.there.BlockDigests())
		if what := FirstDifference(m.List(block), c.there.List(block)); block != c.block ||
			what != c.want {
			t.Errorf("block %d: %q, want block %d: %q", block, what, c.block, c.want)
		}
	}
}

// TestDamagedIndexIsFound flips each byte of an index in turn: the index is refused, or
// CheckIdentity returns an error, except for bytes outside the identity (root, padding of columns,
// formats).
func TestDamagedIndexIsFound(t *testing.T) {
	var built bytes.Buffer
	whole := listed("a/1.png", "a/2.png", "b/1.png")
	stagingtest.Must(t, writeIndex(&built, whole))
	data := built.Bytes()
	root := strings.LastIndex(string(data), whole.root)
	var missed []int
	for i := range data {
		if i >= root && i < root+int(data[56]) {
			continue
		}
		flipped := bytes.Clone(data)
		flipped[i] ^= 0x10
		m, err := parseIndex(flipped)
		if err == nil && m.CheckIdentity() == nil {
			missed = append(missed, i)
		}
	}
	if len(missed) > 5 { // 4 bytes pad the ends of three names, and one flag is no column
		t.Errorf("bytes %d may change unseen, of %d", missed, len(data))
	}
}
