package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler"
)

// modTime is the modification time of every file that tree makes.
var modTime = time.Date(2024, 2, 29, 12, 30, 0, 123_456_789, time.UTC)

// tree makes files below a new folder and returns it. An entry is a path; "path -> target" is a
// symbolic link, "path/" an empty folder. A file holds its own path.
func tree(t testing.TB, entries ...string) string {
	t.Helper()
	root := t.TempDir()
	grow(t, root, entries...)
	return root
}

// grow adds entries to a tree.
func grow(t testing.TB, root string, entries ...string) {
	t.Helper()
	for _, entry := range entries {
		rel, target, isLink := strings.Cut(entry, " -> ")
		path := filepath.Join(root, rel)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		switch {
		case isLink:
			must(t, os.Symlink(target, path))
		case strings.HasSuffix(rel, "/"):
			must(t, os.MkdirAll(path, 0o755))
		default:
			must(t, os.WriteFile(path, []byte(rel), 0o644))
			must(t, os.Chtimes(path, modTime, modTime))
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func scan(t testing.TB, root string) *Manifest {
	t.Helper()
	m, err := Scan(context.Background(), root, ScanOptions{})
	must(t, err)
	return m
}

// wantError fails the test unless err's text holds every one of parts, and is one line.
func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q is not one line", err)
	}
}

// setParts makes every sample a part of a file.
func (m *Manifest) setParts(offsets ...int64) {
	m.addFormats()
	for i := range m.formats {
		m.offsets[i], m.formats[i] = offsets[i], FormatPart
	}
}

// samples lists "label relative-path" of every sample.
func samples(m *Manifest) []string {
	var list []string
	for id := range scheduler.SampleID(m.Len()) {
		list = append(list, fmt.Sprintf("%d %s", m.Label(id), m.RelPath(id)))
	}
	return list
}

// differ returns the first way in which two manifests differ, "" if none. An index keeps no times
// of folders.
func differ(a, b *Manifest, isIndex bool) string {
	if a.Len() != b.Len() || a.Root() != b.Root() {
		return fmt.Sprintf("%d samples of %q, %d of %q", a.Len(), a.Root(), b.Len(), b.Root())
	}
	for id := range scheduler.SampleID(a.Len()) {
		x := []any{
			a.Path(id), a.Size(id), a.Offset(id), a.Label(id), a.ModTime(id), a.Format(id),
			a.Members(id),
		}
		y := []any{
			b.Path(id), b.Size(id), b.Offset(id), b.Label(id), b.ModTime(id), b.Format(id),
			b.Members(id),
		}
		if fmt.Sprintf("%q", x) != fmt.Sprintf("%q", y) {
			return fmt.Sprintf("sample %d is %q and %q", id, x, y)
		}
		xSum, xKnown := a.Checksum(id)
		ySum, yKnown := b.Checksum(id)
		if xSum != ySum || xKnown != yKnown {
			return fmt.Sprintf("the checksum of sample %d is %x and %x", id, xSum, ySum)
		}
	}
	if !slices.Equal(a.classes, b.classes) || a.Identity() != b.Identity() {
		return fmt.Sprintf("classes %q, %v; classes %q, %v", a.classes, a.Identity(), b.classes,
			b.Identity())
	}
	if !isIndex && !slices.Equal(a.folders, b.folders) {
		return fmt.Sprintf("classes %q, folders %v; classes %q, folders %v", a.classes, a.folders,
			b.classes, b.folders)
	}
	return ""
}

// anyManifest draws manifests with odd names: line feeds, quotes, bytes that are no UTF-8, half
// letters.
func anyManifest() *rapid.Generator[*Manifest] {
	name := rapid.Custom(func(t *rapid.T) string {
		letter := rapid.SampledFrom([]string{
			"a", "b", ".", "-", "\n", `"`, `\`, "ä", "\U0001F600",
			"\xff", "\xc3", "\xa4", "\ufffd",
		})
		name := strings.Join(rapid.SliceOfN(letter, 1, 6).Draw(t, "letters"), "")
		if strings.Trim(name, ".") == "" {
			name += "x"
		}
		return name
	})
	return rapid.Custom(func(t *rapid.T) *Manifest {
		m := &Manifest{
			root:    "/" + name.Draw(t, "root"),
			classes: rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "classes"),
			folders: []folder{{"", 5}},
		}
		for _, class := range m.classes {
			m.folders = append(m.folders, folder{class, rapid.Int64().Draw(t, "folder time")})
		}
		if rapid.Bool().Draw(t, "offsets") {
			m.addFormats()
		}
		if m.offsets != nil && rapid.Bool().Draw(t, "members") {
			m.members.ends = []uint32{}
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "n") {
			label := rapid.IntRange(0, len(m.classes)-1).Draw(t, "label")
			m.add(uint32(label+1), name.Draw(t, "name"), uint32(label),
				rapid.Int64Range(0, 1<<40).Draw(t, "size"), rapid.Int64().Draw(t, "time"))
			if m.offsets == nil {
				continue
			}
			if m.formats[i] = Format(rapid.IntRange(0, int(formats)-1).Draw(
				t, "format")); m.formats[i] != FormatFile {
				m.offsets[i] = rapid.Int64Range(0, 1<<40).Draw(t, "offset")
			}
			if m.formats[i] == FormatTar && m.members.ends != nil {
				for m.sizes[i] = 0; m.sizes[i] == 0 || rapid.Bool().Draw(t, "more"); {
					size := rapid.Int64Range(1, 1<<40).Draw(t, "member size")
					m.members.add(m.members.kindNumber(name.Draw(t, "kind")),
						rapid.Int64Range(0, 1<<40).Draw(t, "place"), size)
					m.sizes[i] += size
				}
				m.members.ends[i] = uint32(len(m.members.kind))
			}
		}
		if rapid.Bool().Draw(t, "checksums") {
			m = m.WithChecksums(rapid.SliceOfN(rapid.Uint64(), m.Len(), m.Len()).Draw(t, "sums"))
		}
		m.members.numbers = nil
		return m
	})
}
