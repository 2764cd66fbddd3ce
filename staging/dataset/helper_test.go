package dataset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/stagingtest"
)

// listed returns the manifest that a scan of stagingtest.Tree(t, entries...) would return, except
// for the folders' times; it makes no files. An entry that ends in "/" is an empty folder.
func listed(entries ...string) *Manifest {
	files := map[string][]string{}
	for _, entry := range append(entries, "") {
		at := strings.LastIndex(entry, "/")
		dir, name := entry[:max(at, 0)], entry[at+1:]
		for in := dir; ; in = in[:max(strings.LastIndex(in, "/"), 0)] {
			files[in] = append(files[in], []string{}...)
			if in == "" {
				break
			}
		}
		if name != "" {
			files[dir] = append(files[dir], name)
		}
	}
	folders := slices.SortedFunc(maps.Keys(files), CompareFolders)
	m := &Manifest{root: "/tree"}
	for row, dir := range folders {
		m.folders = append(m.folders, Folder{Path: dir})
		if class := ClassOf(dir); dir != "" && !slices.Contains(m.classes, class) {
			m.classes = append(m.classes, class)
		}
		slices.SortFunc(files[dir], CompareNames)
		for _, name := range files[dir] {
			size := len(strings.TrimPrefix(dir+"/"+name, "/"))
			m.add(uint32(row), name, uint32(len(m.classes)-1), int64(size), stagingtest.ModTime.UnixNano())
		}
	}
	return m
}

// setParts makes every sample a part of a file.
func (m *Manifest) setParts(offsets ...int64) {
	m.addFormats()
	for i := range m.formats {
		m.offsets.wide[i], m.formats[i] = offsets[i], FormatPart
	}
}

// wantRead checks that a manifest that was read is the one that was written.
func wantRead(t *rapid.T, want, got *Manifest, err error, isIndex bool) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := difference(want, got, isIndex); diff != "" {
		t.Fatal(diff)
	}
}

// difference returns the first way in which two manifests differ, "" if none. An index does not
// hold the folders' times.
func difference(a, b *Manifest, isIndex bool) string {
	if a.Len() != b.Len() || a.Root() != b.Root() {
		return fmt.Sprintf("%d samples of %q, %d of %q", a.Len(), a.Root(), b.Len(), b.Root())
	}
	for id := range draw.SampleID(a.Len()) {
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

// anyManifest draws manifests with odd names: line feeds, quotes, invalid UTF-8, half letters.
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
			folders: []Folder{{"", 5}},
		}
		for _, class := range m.classes {
			m.folders = append(m.folders, Folder{class, rapid.Int64().Draw(t, "folder time")})
		}
		if rapid.Bool().Draw(t, "offsets") {
			m.addFormats()
		}
		if !m.offsets.absent() && rapid.Bool().Draw(t, "members") {
			m.members.ends = []uint32{}
		}
		for i := range rapid.IntRange(1, 20).Draw(t, "n") {
			label := rapid.IntRange(0, len(m.classes)-1).Draw(t, "label")
			m.add(uint32(label+1), name.Draw(t, "name"), uint32(label),
				rapid.Int64Range(0, 1<<40).Draw(t, "size"), rapid.Int64().Draw(t, "time"))
			if m.offsets.absent() {
				continue
			}
			if m.formats[i] = Format(rapid.IntRange(0, int(formats)-1).Draw(
				t, "format")); m.formats[i] != FormatFile {
				m.offsets.wide[i] = rapid.Int64Range(0, 1<<40).Draw(t, "offset")
			}
			if m.formats[i] == FormatTar && m.members.ends != nil {
				for m.sizes.wide[i] = 0; m.sizes.wide[i] == 0 || rapid.Bool().Draw(t, "more"); {
					size := rapid.Int64Range(1, 1<<40).Draw(t, "member size")
					m.members.add(m.members.kindNumber(name.Draw(t, "kind")),
						rapid.Int64Range(0, 1<<40).Draw(t, "place"), size)
					m.sizes.wide[i] += size
				}
				m.members.ends[i] = uint32(m.members.kind.len())
			}
		}
		if rapid.Bool().Draw(t, "checksums") {
			m = m.WithChecksums(rapid.SliceOfN(rapid.Uint64(), m.Len(), m.Len()).Draw(t, "sums"))
		}
		m.members.numbers = nil
		return m
	})
}
