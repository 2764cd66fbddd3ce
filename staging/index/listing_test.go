package index

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rankpool/staging/dataset"
)

func TestListingRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &listing{modTime: rapid.Int64().Draw(t, "time")}
		for _, name := range rapid.SliceOfN(oddName(), 0, 8).Draw(t, "files") {
			l.files = append(l.files, scannedFile{
				name, rapid.Int64Range(0, 1<<62).Draw(t, "size"),
				rapid.Int64().Draw(t, "time"),
			})
		}
		for _, name := range rapid.SliceOfN(oddName(), 0, 8).Draw(t, "folders") {
			l.folders = append(l.folders, subFolder{name, rapid.Bool().Draw(t, "link")})
		}
		l.dangling = rapid.SliceOfN(oddName(), 0, 3).Draw(t, "dangling")
		got, err := parseListing(l.append(nil))
		if err != nil || got.modTime != l.modTime || !slices.Equal(got.files, l.files) ||
			!slices.Equal(got.folders, l.folders) || !slices.Equal(got.dangling, l.dangling) {
			t.Fatalf("%+v became %+v, %v", l, got, err)
		}
	})
}

func FuzzParseListing(f *testing.F) {
	f.Add(
		(&listing{
			5, []scannedFile{{"a", 1, 2}, {"\xff", 0, -1}}, []subFolder{{"b", true}}, []string{"c"},
		}).append(nil),
	)
	f.Add([]byte{0, 1, 200, 1, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := parseListing(data)
		if err != nil {
			return
		}
		again, err := parseListing(l.append(nil))
		if err != nil || !slices.Equal(again.files, l.files) ||
			!slices.Equal(again.folders, l.folders) || !slices.Equal(again.dangling, l.dangling) {
			t.Errorf("%+v became %+v, %v", l, again, err)
		}
		for _, file := range l.files {
			if file.size < 0 || dataset.CheckName([]byte(file.name)) != nil {
				t.Errorf("a file %+v", file)
			}
		}
	})
}
