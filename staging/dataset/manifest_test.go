package dataset

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
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
	mtime := stagingtest.ModTime.UnixNano()
	want := []row[string]{
		{ID: 0, Path: "cat/1", Size: 5, Class: "cat", ModTime: mtime, Format: "file"},
		{ID: 1, Path: "dog/22", Size: 6, Label: 1, Class: "dog", ModTime: mtime, Format: "file"},
	}
	for i := range rows {
		rows[i].Members = nil // there are none
	}
	if !reflect.DeepEqual(rows, want) {
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
	required binary format (STRING);
	required int64 xxh3 (INT(64,false));
	required group members (LIST) {
		repeated group list {
			required group element {
				required binary kind (STRING);
				required int64 offset (INT(64,true));
				required int64 size (INT(64,true));
			}
		}
	}
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

// writeRowsOf writes rows with the metadata of m, some of it replaced.
func writeRowsOf[R any](t *testing.T, m *Manifest, rows []R, options ...parquet.WriterOption) string {
	t.Helper()
	var out bytes.Buffer
	w := parquet.NewGenericWriter[R](&out, append([]parquet.WriterOption{
		parquet.KeyValueMetadata(keyVersion, manifestVersion),
		parquet.KeyValueMetadata(keyHeader, m.header()),
		parquet.MaxRowsPerRowGroup(2),
	}, options...)...)
	_, err := w.Write(rows)
	stagingtest.Must(t, err)
	stagingtest.Must(t, w.Close())
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, os.WriteFile(path, out.Bytes(), 0o644))
	return path
}

func TestParquetInconsistent(t *testing.T) {
	m := built("/data", []string{"0", "1"}, []Folder{{"", 1}, {"a", 2}},
		Sample{
			Path: "s.tar", Format: FormatTar, Offset: 512, Size: 4, Label: 1,
			Members: []Member{{"jpg", 512, 3}, {"cls", 1536, 1}},
		},
		Sample{
			Path: "s.tar", Format: FormatTar, Offset: 2560, Size: 1, Members: []Member{{"cls", 2560, 1}},
		},
		Sample{Path: "a/1", Size: 5})
	header := func(text string) []parquet.WriterOption {
		return []parquet.WriterOption{parquet.KeyValueMetadata(keyHeader, text)}
	}
	for _, c := range []struct {
		name   string
		change func(rows []row[string])
		meta   []parquet.WriterOption
		want   string
	}{
		{"nothing", nil, nil, ""},
		{
			"ids from 1", func(r []row[string]) { r[0].ID, r[1].ID, r[2].ID = 1, 2, 3 }, nil,
			"sample 0: it has the id 1: ids must be 0 to N-1 in order",
		},
		{"ids twice", func(r []row[string]) { r[2].ID = 1 }, nil, "ids must be 0 to N-1"},
		{
			"negative size", func(r []row[string]) { r[2].Size = -1 }, nil,
			"sample 2: it cannot have -1 bytes at offset 0",
		},
		{"no label", func(r []row[string]) { r[2].Label = 2 }, nil, "label 2 is not one of the 2"},
		{"no name", func(r []row[string]) { r[2].Path = "b/" }, nil, `sample 2: "" is not a file name`},
		{"upwards", func(r []row[string]) { r[2].Path = "../x" }, nil, `".." is not a folder below`},
		{"outside", func(r []row[string]) { r[2].Path = "/etc/x" }, nil, `"/etc" is not a folder below`},
		{"format", func(r []row[string]) { r[1].Format = "zip" }, nil, `sample 1: unknown format "zip"`},
		{
			"whole file", func(r []row[string]) { r[1].Format = "file" }, nil,
			"sample 1: it cannot have 1 bytes at offset 2560",
		},
		{
			"size", func(r []row[string]) { r[0].Size++ }, nil,
			"sample 0: it has 5 bytes, but its members have 4",
		},
		{
			"member size", func(r []row[string]) { r[0].Members[1].Size = -1 }, nil,
			"sample 0: it has an impossible member",
		},
		{
			"member missing", func(r []row[string]) { r[0].Members = r[0].Members[:1] }, nil,
			"sample 0: it has 4 bytes, but its members have 3",
		},
		{
			"version", nil,
			[]parquet.WriterOption{parquet.KeyValueMetadata(keyVersion, "2")},
			`has version "2", only 3 is known: index the data set again`,
		},
		{
			"not ours", nil,
			[]parquet.WriterOption{parquet.KeyValueMetadata(keyVersion, "")},
			"is a parquet file but not a rankpool manifest",
		},
		{"no header", nil, header("["), "has a damaged header"},
		{"relative root", nil, header(`{"classes": ["",""]}`), `root "." is not an absolute path`},
		{"folder times", nil, header(`{"folders": [""]}`), "has 1 folders and 0 folder times"},
		{
			"folder outside", nil, header(`{"folders": ["Li4="], "folder_times": [1]}`),
			`".." is not a folder below the root`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rows []row[string]
			for id := range draw.SampleID(m.Len()) {
				rows = append(rows, rowOf[string](m, id))
			}
			if c.change != nil {
				c.change(rows)
			}
			path := writeRowsOf(t, m, rows, c.meta...)
			got, err := ReadParquet(path)
			if c.want != "" {
				stagingtest.WantError(t, err, "staging: manifest "+path, c.want)
				return
			}
			stagingtest.Must(t, err)
			if diff := difference(m, got, false); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := ReadParquet(writeRowsOf(t, m, []row[string]{}))
	stagingtest.WantError(t, err, "holds no sample")
	type noPath struct {
		ID int64 `parquet:"id"`
	}
	_, err = ReadParquet(writeRowsOf(t, m, []noPath{{0}}))
	stagingtest.WantError(t, err, "has other columns than a manifest")
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
		{"half", whole[:len(whole)/2], "is damaged"},
		{"one byte short", whole[:len(whole)-1], "is damaged"},
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

// TestParquetFlippedBits damages every third byte in turn: reading must return an error, or a
// consistent manifest. (Not a fuzz target: the library counts to 2³¹ at some damaged footers.)
func TestParquetFlippedBits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.parquet")
	stagingtest.Must(t, WriteParquet(path, goldenIndex()))
	data, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	errors, tries := 0, 0
	for i := 0; i < len(data); i += 3 {
		tries++
		data[i] ^= 0x55
		m, err := parseParquet(bytes.NewReader(data), int64(len(data)))
		data[i] ^= 0x55
		if err != nil {
			errors++
			continue
		}
		checkWhole(t, m)
	}
	if errors < tries/4 {
		t.Errorf("%d of %d damaged files gave an error", errors, tries)
	}
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

// TestBuilderMakesAnyManifest rebuilds manifests of any kind, and sends them to another rank.
func TestBuilderMakesAnyManifest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		want := anyManifest().Draw(r, "manifest")
		got := want.edited(func(int, *Sample) {})
		wantRead(r, want, got, nil, true)
		data, err := EncodeManifest(got)
		if err != nil {
			r.Fatal(err)
		}
		sent, err := DecodeManifest(data)
		wantRead(r, got, sent, err, false)
	})
	_, err := DecodeManifest([]byte("x"))
	stagingtest.WantError(t, err, "the manifest of another rank: is not a parquet file")
}

func TestBuilderRefuses(t *testing.T) {
	for sentence, change := range map[string]func(*Sample){
		`"../f" is not a folder`:              func(s *Sample) { s.Path = "../f/x" },
		`is not a file name`:                  func(s *Sample) { s.Path = "a/" },
		"label 2 is not one of the 2 classes": func(s *Sample) { s.Label = 2 },
		"it cannot have the label -1":         func(s *Sample) { s.Label = -1 },
		"it cannot have -1 bytes at offset 5": func(s *Sample) { s.Size = -1 },
		"bytes at offset 9223372036854775807": func(s *Sample) { s.Offset = math.MaxInt64 },
		"it cannot have 4 bytes at offset 5":  func(s *Sample) { s.Format = FormatFile },
		"unknown format 77":                   func(s *Sample) { s.Format = 77 },
		"it has 4 bytes, but its members have": func(s *Sample) {
			s.Members = []Member{{"a", 0, 3}}
		},
	} {
		sample := Sample{Path: "f", Format: FormatTar, Offset: 5, Size: 4}
		change(&sample)
		b := NewBuilder("/data", 1)
		err := b.Add(sample)
		if err == nil {
			_, err = b.Manifest([]string{"a", "b"})
		}
		stagingtest.WantError(t, err, sentence)
	}
	_, err := NewBuilder("/data", 0).Manifest(nil)
	stagingtest.WantError(t, err, "holds no sample")
	b := NewBuilder("data", 1)
	stagingtest.Must(t, b.Add(Sample{Path: "f"}))
	_, err = b.Manifest([]string{""})
	stagingtest.WantError(t, err, "is not an absolute path")
}

// synthetic returns a manifest like ImageNet's: classes folders with perClass files each, named
// n01440764_10026.JPEG.
func synthetic(classes, perClass int) *Manifest {
	var names []string
	folders := []Folder{{"", 1}}
	var samples []Sample
	for label := range classes {
		class := fmt.Sprintf("n%08d", 1440764+label*37)
		names = append(names, class)
		folders = append(folders, Folder{class, 1_700_000_000_123_456_789 + int64(label)})
		for i := range perClass {
			samples = append(samples, Sample{
				Path: fmt.Sprintf("%s/%[1]s_%05d.JPEG", class, i), Label: label,
				Size:    int64(100_000 + (i*7919)%50_000),
				ModTime: 1_600_000_000_000_000_000 + int64(i)*1_000_003,
			})
		}
	}
	return built("/data/imagenet/train", names, folders, samples...)
}
