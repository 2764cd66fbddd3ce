package dataset

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/stagingtest"
)

func TestParquetRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "m.parquet")
		m := anyManifest().Draw(t, "manifest")
		if err := WriteParquet(path, m); err != nil {
			t.Fatal(err)
		}
		got, err := ReadParquet(path)
		wantRead(t, m, got, err, false)
	})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestParquetColumns reads a manifest with the library's own reader, as another program would.
func TestParquetColumns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, WriteParquet(path, listed("cat/1", "dog/22")))
	rows, err := parquet.ReadFile[row[string]](path)
	stagingtest.Must(t, err)
	want := []row[string]{
		{
			ID:      0,
			Path:    "cat/1",
			Size:    5,
			Label:   0,
			Class:   "cat",
			ModTime: stagingtest.ModTime.UnixNano(),
		},
		{
			ID:      1,
			Path:    "dog/22",
			Size:    6,
			Label:   1,
			Class:   "dog",
			ModTime: stagingtest.ModTime.UnixNano(),
		},
	}
	if !slices.Equal(rows, want) {
		t.Errorf("got %v, want %v", rows, want)
	}
	text := `message row {
	required int64 id (INT(64,true));
	required binary path (STRING);
	required int64 offset (INT(64,true));
	required int64 size (INT(64,true));
	required int32 label (INT(32,true));
	required binary class (STRING);
	required int64 mtime (TIMESTAMP(isAdjustedToUTC=true,unit=NANOS));
}`
	if got := schemaText(t, path); got != text {
		t.Errorf("schema\n%s\nwant\n%s", got, text)
	}
	stagingtest.Must(t, WriteParquet(path, listed("cat/\xff")))
	if got := schemaText(t, path); !strings.Contains(got, "binary path;") {
		t.Errorf("a path that is no UTF-8 has the schema\n%s", got)
	}
}

func schemaText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	file, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	stagingtest.Must(t, err)
	_, text, _ := strings.Cut(file.Schema().String(), "{")
	return "message row {" + text
}

// A foreignRow is a row as pyarrow may write it: any value may be null, and many columns have a
// dictionary.
type foreignRow struct {
	Path   *string `parquet:"path,dict,optional"`
	ID     *uint32 `parquet:"id,optional"`
	Size   *int64  `parquet:"size,dict,optional"`
	Offset *int32  `parquet:"offset,dict,optional"`
	MTime  *int64  `parquet:"mtime,optional,timestamp(nanosecond)"`
	Extra  *string `parquet:"extra,optional"`
	Label  *int64  `parquet:"label,dict,optional"`
}

func foreignRows(m *Manifest) (rows []foreignRow) {
	for id := range draw.SampleID(m.Len()) {
		path, number, size, offset := m.RelPath(id), uint32(id), m.Size(id), int32(m.Offset(id))
		time, label := m.ModTime(id), int64(m.Label(id))
		rows = append(rows, foreignRow{&path, &number, &size, &offset, &time, nil, &label})
	}
	return rows
}

// writeForeign writes rows with the metadata of m, some of it replaced.
func writeForeign[R any](t *testing.T, m *Manifest, rows []R,
	options ...parquet.WriterOption,
) string {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[R](&out, append(m.metadata(), options...)...)
	_, err := w.Write(rows)
	stagingtest.Must(t, err)
	stagingtest.Must(t, w.Close())
	path := filepath.Join(t.TempDir(), "foreign.parquet")
	stagingtest.Must(t, os.WriteFile(path, out.Bytes(), 0o644))
	return path
}

func TestParquetForeign(t *testing.T) {
	m := listed("a/1", "a/b/2", "a/b/3", "c/4", "c/5")
	m.setParts(0, 5, 0, 7, 1)
	for _, version := range []int{1, 2} {
		path := writeForeign(t, m, foreignRows(m), parquet.MaxRowsPerRowGroup(2),
			parquet.DataPageVersion(version))
		got, err := ReadParquet(path)
		stagingtest.Must(t, err)
		if diff := difference(m, got, false); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParquetInconsistent(t *testing.T) {
	m := listed("a/1", "a/2", "b/3")
	meta := func(key, value string) []parquet.WriterOption {
		return []parquet.WriterOption{parquet.KeyValueMetadata(key, value)}
	}
	for _, c := range []struct {
		name   string
		change func(rows []foreignRow)
		meta   []parquet.WriterOption
		want   string
	}{
		{
			"ids from 1", func(r []foreignRow) { *r[0].ID, *r[1].ID, *r[2].ID = 1, 2, 3 }, nil,
			"row 0 has the id 1",
		},
		{"ids twice", func(r []foreignRow) { *r[2].ID = 1 }, nil, "ids must be 0 to N-1"},
		{"null", func(r []foreignRow) { r[1].Size = nil }, nil, "column size has no value in row 1"},
		{
			"negative size", func(r []foreignRow) { *r[1].Size = -1 }, nil,
			"column size, row 1: -1 is less than 0",
		},
		{"negative offset", func(r []foreignRow) { *r[1].Offset = -1 }, nil, "column offset, row 1"},
		{
			"offset and size", func(r []foreignRow) { *r[1].Offset, *r[1].Size = 1, math.MaxInt64 }, nil,
			"offset 1 is too large",
		},
		{
			"no such label", func(r []foreignRow) { *r[2].Label = 2 }, nil,
			"label 2 is not one of the 2 classes",
		},
		{"no name", func(r []foreignRow) { *r[2].Path = "b/" }, nil, `row 2: "" is not a file name`},
		{"upwards", func(r []foreignRow) { *r[2].Path = "b/.." }, nil, `".." is not a file name`},
		{
			"no such folder", func(r []foreignRow) { *r[2].Path = "/etc/passwd" }, nil,
			`folder "/etc" is missing`,
		},
		{
			"no such folder, again the empty one", func(r []foreignRow) { *r[0].Path = "../x" }, nil,
			`folder ".." is missing`,
		},
		{"version", nil, meta(keyVersion, "3"), `has version "3", only 1 and 2 are known`},
		{"not ours", nil, meta(keyVersion, ""), "is a parquet file but not a rankpool manifest"},
		{"relative root", nil, meta(keyRoot, "data"), `root "data" is not an absolute path`},
		{"classes", nil, meta(keyClasses, "a,b"), "has no list of classes"},
		{"folders", nil, meta(keyFolders, "[1]"), "has no list of folders"},
		{
			"folder outside", nil, meta(keyFolders, `["","a","../b"]`),
			`"../b" is not a folder below the root`,
		},
		{"folder times", nil, meta(keyFolderTimes, `["x"]`), "has no list of folder times"},
		{"folder time missing", nil, meta(keyFolderTimes, `[1]`), "has 3 folders and 1 folder times"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rows := foreignRows(m)
			if c.change != nil {
				c.change(rows)
			}
			path := writeForeign(t, m, rows, c.meta...)
			_, err := ReadParquet(path)
			stagingtest.WantError(t, err, "staging: manifest "+path, c.want)
		})
	}
	_, err := ReadParquet(writeForeign(t, m, []foreignRow{}))
	stagingtest.WantError(t, err, "holds no sample")
}

// TestParquetForeignMembers reads formats, checksums and members that another program wrote, which
// may not agree.
func TestParquetForeignMembers(t *testing.T) {
	m, err := Build("/data", []string{"0", "1"}, 2, func(i int) Sample {
		return []Sample{
			{
				Path: "s.tar", Format: FormatTar, Offset: 512, Size: 4, Label: 1,
				Members: []Member{{"jpg", 512, 3}, {"cls", 1536, 1}},
			},
			{Path: "s.tar", Format: FormatTar, Offset: 2560, Size: 1, Members: []Member{{"cls", 2560, 1}}},
		}[i]
	})
	stagingtest.Must(t, err)
	m = m.WithChecksums([]uint64{7, 0})
	for _, c := range []struct {
		name   string
		change func(rows []shardedRow[string])
		want   string
	}{
		{"nothing", func([]shardedRow[string]) {}, ""},
		{
			"format", func(r []shardedRow[string]) { r[1].Format = "zip" },
			`column format, row 1: unknown format "zip"`,
		},
		{
			"whole file", func(r []shardedRow[string]) { r[1].Format = "file" },
			"a sample that is a whole file has the offset",
		},
		{
			"size", func(r []shardedRow[string]) { r[0].Size++ },
			"sample 0 has 5 bytes, but its members have 4",
		},
		{
			"member size", func(r []shardedRow[string]) { r[0].Members[1].Size = -1 },
			"sample 0 has an impossible member",
		},
		{
			"member offset", func(r []shardedRow[string]) { r[0].Members[1].Offset = math.MaxInt64 },
			"sample 0 has an impossible member",
		},
		{
			"member missing", func(r []shardedRow[string]) { r[0].Members = r[0].Members[:1] },
			"sample 0 has 4 bytes, but its members have 3",
		},
	} {
		var rows []shardedRow[string]
		for id := range draw.SampleID(m.Len()) {
			rows = append(rows, shardedRowOf[string](m, id))
		}
		c.change(rows)
		got, err := ReadParquet(writeForeign(t, m, rows))
		if c.want != "" {
			stagingtest.WantError(t, err, "staging: manifest ", c.want)
			continue
		}
		stagingtest.Must(t, err)
		if diff := difference(m, got, false); diff != "" {
			t.Error(diff)
		}
	}
}

func TestParquetColumnTypes(t *testing.T) {
	m := listed("a/1")
	type noPath struct {
		ID int64 `parquet:"id"`
	}
	_, err := ReadParquet(writeForeign(t, m, []noPath{{0}}))
	stagingtest.WantError(t, err, "has no column path")
	type textID struct {
		ID string `parquet:"id"`
	}
	_, err = ReadParquet(writeForeign(t, m, []textID{{"0"}}))
	stagingtest.WantError(t, err, "column id is of type")
	type listID struct {
		ID []int64 `parquet:"id"`
	}
	_, err = ReadParquet(writeForeign(t, m, []listID{{[]int64{0}}}))
	stagingtest.WantError(t, err, "column id is of type")
	type milliseconds struct {
		ID     int64  `parquet:"id"`
		Path   string `parquet:"path"`
		Size   int64  `parquet:"size"`
		Offset int64  `parquet:"offset"`
		Label  int64  `parquet:"label"`
		MTime  int64  `parquet:"mtime,timestamp(millisecond)"`
	}
	_, err = ReadParquet(writeForeign(t, m, []milliseconds{{Path: "a/1"}}))
	stagingtest.WantError(t, err, "column mtime is of type")
}

func TestParquetDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.parquet")
	stagingtest.Must(t, WriteParquet(path, synthetic(3, 5)))
	whole, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{"empty", nil, "is not a parquet file"},
		{"text", []byte("id,path,size\n0,a/1,5\n"), "is not a parquet file"},
		{"half", whole[:len(whole)/2], "is truncated"},
		{"one byte short", whole[:len(whole)-1], "is truncated"},
		{"footer lost", slices.Concat(whole[:len(whole)/2], whole[len(whole)-8:]), "is damaged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			stagingtest.Must(t, os.WriteFile(path, c.data, 0o644))
			_, err := ReadParquet(path)
			stagingtest.WantError(t, err, "staging: manifest "+path, c.want)
		})
	}
	_, err = ReadParquet(filepath.Join(dir, "gone"))
	stagingtest.WantError(t, err, "staging: ", "gone", "no such file")
	_, err = ReadParquet(dir)
	stagingtest.WantError(t, err, "staging: ", dir)
	err = WriteParquet(filepath.Join(dir, "gone", "m.parquet"), synthetic(1, 1))
	stagingtest.WantError(t, err, "staging: write manifest ", "no such file")
}

// TestParquetFlippedBits damages each byte in turn: reading must return an error, or a consistent
// manifest. (Not a fuzz target: the library counts to 2³¹ at some damaged footers.)
func TestParquetFlippedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, WriteParquet(path, goldenIndex()))
	data, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	errors := 0
	for i := range data {
		data[i] ^= 0x55
		m, err := parseParquet(bytes.NewReader(data), int64(len(data)))
		data[i] ^= 0x55
		if err != nil {
			errors++
			continue
		}
		checkWhole(t, m)
	}
	if errors < len(data)/4 {
		t.Errorf("%d of %d damaged files gave an error", errors, len(data))
	}
}

// FuzzParquet reads manifests of any values: that must return an error, or a consistent manifest.
func FuzzParquet(f *testing.F) {
	m := &Manifest{classes: []string{"a"}, folders: []Folder{{"a", 1}}}
	f.Add(uint32(0), "a/1", int64(5), int32(0), int64(0), int64(7), "/data", encodeNames(m.classes),
		`["a"]`, `[1]`)
	f.Add(uint32(1), "../1", int64(-5), int32(-1), int64(9), int64(-7), "data", `["\udcff"]`,
		`["", "a/b"]`, `[1,2]`)
	f.Fuzz(func(t *testing.T, id uint32, path string, size int64, offset int32, label, time int64,
		root, classes, folders, times string,
	) {
		rows := []foreignRow{{&path, &id, &size, &offset, &time, nil, &label}}
		file := writeForeign(
			t,
			m,
			rows,
			parquet.KeyValueMetadata(keyRoot, root),
			parquet.KeyValueMetadata(keyClasses, classes),
			parquet.KeyValueMetadata(keyFolders, folders),
			parquet.KeyValueMetadata(keyFolderTimes, times),
		)
		if m, err := ReadParquet(file); err == nil {
			checkWhole(t, m)
		}
	})
}

// checkWhole calls every method of m for every sample.
func checkWhole(t *testing.T, m *Manifest) {
	for id := range draw.SampleID(m.Len()) {
		if !strings.HasPrefix(m.Path(id), m.Root()) || m.Size(id) < 0 || m.Offset(id) < 0 ||
			m.Label(id) < 0 || m.Label(id) >= len(m.Classes()) {
			t.Errorf("sample %d: %s", id, fmt.Sprint(m.Path(id), m.Size(id), m.Offset(id), m.Label(id)))
		}
		m.ModTime(id)
		m.Checksum(id)
		sum := int64(0)
		for _, member := range m.Members(id) {
			sum += member.Size
			if member.Size < 0 || member.Offset < 0 || member.Offset+member.Size > m.End(id) {
				t.Errorf("sample %d has the member %+v", id, member)
			}
		}
		if sum != m.Size(id) || m.Format(id).String() == "" {
			t.Errorf("sample %d, %s, has %d bytes, its members %d", id, m.Format(id), m.Size(id), sum)
		}
	}
}

// TestBuildMakesAnyManifest rebuilds manifests of any kind, and sends them to another rank.
func TestBuildMakesAnyManifest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := anyManifest().Draw(r, "manifest")
		got, err := Build(want.Root(), want.Classes(), want.Len(), func(i int) Sample {
			return want.Sample(draw.SampleID(i))
		})
		wantRead(r, want, got, err, true)
		data, err := EncodeManifest(got)
		if err != nil {
			r.Fatal(err)
		}
		sent, err := DecodeManifest(data)
		wantRead(r, got, sent, err, false)
	})
}

func TestBuildRefuses(t *testing.T) {
	for sentence, change := range map[string]func(*Sample){
		`"../f" is not a folder`:              func(s *Sample) { s.Path = "../f/x" },
		`is not a file name`:                  func(s *Sample) { s.Path = "a/" },
		"label 2 is not one of the 2 classes": func(s *Sample) { s.Label = 2 },
		"label -1 is not one":                 func(s *Sample) { s.Label = -1 },
		"it cannot have -1 bytes at offset 5": func(s *Sample) { s.Size = -1 },
		"bytes at offset 9223372036854775807": func(s *Sample) { s.Offset = math.MaxInt64 },
		"it cannot have 4 bytes at offset 5":  func(s *Sample) { s.Format = FormatFile },
		"unknown format 77":                   func(s *Sample) { s.Format = 77 },
		"sample 0 has 4 bytes, but its members have": func(s *Sample) {
			s.Members = []Member{{"a", 0, 3}}
		},
	} {
		sample := Sample{Path: "f", Format: FormatTar, Offset: 5, Size: 4}
		change(&sample)
		_, err := Build("/data", []string{"a", "b"}, 1, func(int) Sample { return sample })
		stagingtest.WantError(t, err, "staging: a manifest of /data: sample 0: ", sentence)
	}
	_, err := Build("/data", nil, 0, nil)
	stagingtest.WantError(t, err, "it holds no sample")
	_, err = Build("data", nil, 1, nil)
	stagingtest.WantError(t, err, "is not an absolute path")
	_, err = DecodeManifest([]byte("x"))
	stagingtest.WantError(t, err, "the manifest of another rank: is not a parquet file")
}

// synthetic returns a manifest like ImageNet's: classes folders with perClass files each, named
// n01440764_10026.JPEG.
func synthetic(classes, perClass int) *Manifest {
	m := &Manifest{root: "/data/imagenet/train", folders: []Folder{{"", 1}}}
	m.reserve(classes*perClass, 0)
	for label := range classes {
		class := fmt.Sprintf("n%08d", 1440764+label*37)
		m.classes = append(m.classes, class)
		m.folders = append(m.folders, Folder{class, 1_700_000_000_123_456_789 + int64(label)})
		for i := range perClass {
			name := fmt.Sprintf("%s_%05d.JPEG", class, i)
			m.add(uint32(label+1), name, uint32(label), int64(100_000+(i*7919)%50_000),
				1_600_000_000_000_000_000+int64(i)*1_000_003)
		}
	}
	return m
}
