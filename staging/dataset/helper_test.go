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
	var classes []string
	var folders []Folder
	var samples []Sample
	for _, dir := range slices.SortedFunc(maps.Keys(files), CompareFolders) {
		folders = append(folders, Folder{Path: dir})
		if class := ClassOf(dir); dir != "" && !slices.Contains(classes, class) {
			classes = append(classes, class)
		}
		slices.SortFunc(files[dir], CompareNames)
		for _, name := range files[dir] {
			path := strings.TrimPrefix(dir+"/"+name, "/")
			samples = append(samples, Sample{
				Path: path, Label: len(classes) - 1, Size: int64(len(path)),
				ModTime: stagingtest.ModTime.UnixNano(),
			})
		}
	}
	return built("/tree", classes, folders, samples...)
}

// built returns the manifest of these samples, which must be valid.
func built(root string, classes []string, folders []Folder, samples ...Sample) *Manifest {
	b := NewBuilder(root, len(samples))
	for _, in := range folders {
		if err := b.AddFolder(in); err != nil {
			panic(err)
		}
	}
	for _, s := range samples {
		if err := b.Add(s); err != nil {
			panic(err)
		}
	}
	m, err := b.Manifest(classes)
	if err != nil {
		panic(err)
	}
	return m
}

// edited returns the manifest with its samples changed by edit.
func (m *Manifest) edited(edit func(i int, s *Sample)) *Manifest {
	var samples []Sample
	for id := range draw.SampleID(m.Len()) {
		samples = append(samples, m.Sample(id))
		edit(int(id), &samples[id])
	}
	return built(m.root, m.classes, m.folders, samples...)
}

// parts returns the manifest with samples that are parts of files from these offsets on.
func (m *Manifest) parts(offsets ...int64) *Manifest {
	return m.edited(func(i int, s *Sample) { s.Format, s.Offset = FormatPart, offsets[i] })
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
		classes := rapid.SliceOfNDistinct(name, 1, 4, rapid.ID).Draw(t, "classes")
		folders := []Folder{{"", 5}}
		for _, class := range classes {
			folders = append(folders, Folder{class, rapid.Int64().Draw(t, "folder time")})
		}
		sharded, members := rapid.Bool().Draw(t, "sharded"), rapid.Bool().Draw(t, "members")
		var samples []Sample
		for range rapid.IntRange(1, 20).Draw(t, "n") {
			s := Sample{
				Label: rapid.IntRange(0, len(classes)-1).Draw(t, "label"),
				Size:  rapid.Int64Range(0, 1<<40).Draw(t, "size"), ModTime: rapid.Int64().Draw(t, "time"),
			}
			s.Path = classes[s.Label] + "/" + name.Draw(t, "name")
			if sharded {
				s.Format = Format(rapid.IntRange(0, int(formats)-1).Draw(t, "format"))
			}
			if s.Format != FormatFile {
				s.Offset = rapid.Int64Range(0, 1<<40).Draw(t, "offset")
			}
			if s.Format == FormatTar && members {
				for s.Size = 0; s.Size == 0 || rapid.Bool().Draw(t, "more"); {
					member := Member{
						name.Draw(t, "kind"), rapid.Int64Range(0, 1<<40).Draw(t, "place"),
						rapid.Int64Range(1, 1<<40).Draw(t, "member size"),
					}
					s.Members = append(s.Members, member)
					s.Size += member.Size
				}
			}
			samples = append(samples, s)
		}
		m := built("/"+name.Draw(t, "root"), classes, folders, samples...)
		if rapid.Bool().Draw(t, "checksums") {
			m = m.WithChecksums(rapid.SliceOfN(rapid.Uint64(), m.Len(), m.Len()).Draw(t, "sums"))
		}
		return m
	})
}
