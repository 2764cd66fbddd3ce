package dataset

import (
	"fmt"
	"path/filepath"
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
	paths := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"b", "a/x", "a-b", "a"}).Draw(t, "in") + "/" +
			rapid.SampledFrom([]string{"1", "2", "\xff", "ä", "a"}).Draw(t, "name")
	}), 1, 12, rapid.ID).Draw(t, label)
	var samples []Sample
	for _, path := range paths {
		samples = append(samples, Sample{
			Path: path, Size: rapid.Int64Range(0, 1).Draw(t, "size"), ModTime: 7,
		})
	}
	return built("/"+label, []string{"c"}, nil, samples...)
}

// TestIdentityIsOfTheData checks that a data set that was copied, and each kind of manifest of it,
// has the same digest.
func TestIdentityIsOfTheData(t *testing.T) {
	files := []string{"a/1.png", "a/deep/2.png", "b/1.png", "empty/"}
	m := listed(files...)
	id := m.Identity()

	copied := m.edited(func(_ int, s *Sample) { s.ModTime++ }).Identity()
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

// TestIdentityDiffers checks that every difference that training could see changes the identity.
func TestIdentityDiffers(t *testing.T) {
	files := []string{"a/1.png", "a/2.png", "b/1.png", "b/2.png"}
	m := listed(files...)
	for i, other := range []*Manifest{
		listed("a/1.png", "b/1.png", "b/2.png"),
		listed(append(files, "a/1a.png")...),
		listed("a/1.png", "a/2.png", "c/1.png", "c/2.png"),
		listed(append(files, "c/")...),
		listed(append(files, "aa/")...),
		m.edited(func(i int, s *Sample) { s.Size += int64(i) }),
		m.parts(0, 0, 0, 5),
	} {
		if !other.Identity().Differs(m.Identity()) {
			t.Errorf("data set %d is another one, and has the same identity", i)
		}
	}
}
