package dataset

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/stagingtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestIndexRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "index")
	rapid.Check(t, func(t *rapid.T) {
		m := anyManifest().Draw(t, "manifest")
		if err := WriteIndex(path, m); err != nil {
			t.Fatal(err)
		}
		got, err := OpenIndex(path)
		wantRead(t, m, got, err, true)
	})
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("other users cannot read the index: %v, %v", info.Mode(), err)
	}
}

// A golden describes the content of an index file. Texts are JSON, escaped as Python's
// surrogateescape does.
type golden struct {
	Root    json.RawMessage   `json:"root"`
	Digest  string            `json:"digest"`
	Times   string            `json:"times"`
	Classes []json.RawMessage `json:"classes"`
	Folders []json.RawMessage `json:"folders"`
	Samples []goldenSample    `json:"samples"`
}

type goldenSample struct {
	ID      int             `json:"id"`
	Path    json.RawMessage `json:"path"`
	Size    int64           `json:"size"`
	Offset  int64           `json:"offset"`
	Label   int             `json:"label"`
	MTimeNs int64           `json:"mtime_ns"`
	Format  string          `json:"format"`
	XXH3    string          `json:"xxh3"` // hexadecimal, "" if it is not known
	Members []goldenMember  `json:"members"`
}

type goldenMember struct {
	Kind   string `json:"kind"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// goldenIndex is the content of docs/wire/index_golden.bin: odd names, an empty file, sizes above 4
// GiB, an odd number of samples and of members (so that 32-bit columns need filling), each format,
// checksums.
func goldenIndex() *Manifest {
	folders := []Folder{{Path: ""}, {Path: "cat"}, {Path: "cat/deep\nfolder"}, {Path: "dög"}}
	return built("/data/golden ä", []string{"cat", "dög"}, folders,
		Sample{Path: "cat/1.png", Size: 20, ModTime: 1_700_000_000_123_456_789, Checksum: 1},
		Sample{Path: "cat/line\nfeed.png", ModTime: 1_700_000_000_000_000_000},
		Sample{Path: "cat/deep\nfolder/byte\xff.png", Size: 5_000_000_000, ModTime: -1},
		Sample{Path: "dög/\U0001F600.png", Label: 1, Size: 1, Checksum: 1<<64 - 1},
		Sample{
			Path: "dög/shard.tar", Format: FormatTar, Offset: 5_000_000_512, Size: 110_000, Label: 1,
			ModTime: 1_700_000_001_000_000_001, Checksum: 0x0123456789abcdef,
			Members: []Member{
				{"jpg", 5_000_000_512, 100_000}, {"seg.png", 5_000_101_376, 9_998}, {"cls", 6_000_000_000, 2},
			},
		},
		Sample{
			Path: "dög/shard.tar", Format: FormatTar, Offset: 512, Size: 3, Label: 1,
			ModTime: 1_700_000_001_000_000_001, Members: []Member{{"cls", 512, 3}},
		},
		Sample{
			Path: "r.tfrecord-00000-of-00001", Format: FormatTFRecord, Offset: 12, Size: 7, ModTime: 5,
			Checksum: 2,
		},
		Sample{Path: "cat/a.raw", Format: FormatPart, Offset: 128, Size: 8, ModTime: 6, Checksum: 3},
		Sample{Path: "cat/a.raw", Format: FormatPart, Offset: 136, Size: 8, ModTime: 6, Checksum: 4})
}

// jsonText returns s as Python's json writes the string that os.fsdecode returns: a byte that is
// not valid UTF-8 is \udcXX.
func jsonText(s string) json.RawMessage {
	text := []byte{'"'}
	for s != "" {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			text = fmt.Appendf(text, `\udc%02x`, s[0])
		} else {
			letter, _ := json.Marshal(s[:n]) // a string
			text = append(text, letter[1:len(letter)-1]...)
		}
		s = s[n:]
	}
	return append(text, '"')
}

func goldenText(t *testing.T, m *Manifest) []byte {
	t.Helper()
	id := m.Identity()
	g := golden{Root: jsonText(m.root), Digest: id.Digest.String(), Times: id.Times.String()}
	for _, class := range m.classes {
		g.Classes = append(g.Classes, jsonText(class))
	}
	for _, in := range m.folders {
		g.Folders = append(g.Folders, jsonText(in.Path))
	}
	for id := range draw.SampleID(m.Len()) {
		sample := goldenSample{
			ID: int(id), Path: jsonText(m.Path(id)), Size: m.Size(id), Offset: m.Offset(id),
			Label:   m.Label(id),
			MTimeNs: m.ModTime(id), Format: m.Format(id).String(),
		}
		if sum, known := m.Checksum(id); known {
			sample.XXH3 = fmt.Sprintf("%016x", sum)
		}
		for _, member := range m.Members(id) {
			sample.Members = append(sample.Members, goldenMember(member))
		}
		g.Samples = append(g.Samples, sample)
	}
	text, err := json.MarshalIndent(g, "", "  ")
	stagingtest.Must(t, err)
	return append(text, '\n')
}

// TestIndexGolden compares with the files that the Python tests read. go test -update rewrites
// them.
func TestIndexGolden(t *testing.T) {
	const (
		binaryPath = "../../docs/wire/index_golden.bin"
		textPath   = "../../docs/wire/index_golden.json"
	)
	m := goldenIndex()
	if *update {
		stagingtest.Must(t, WriteIndex(binaryPath, m))
		stagingtest.Must(t, os.WriteFile(textPath, goldenText(t, m), 0o644))
	}
	want, err := os.ReadFile(binaryPath)
	stagingtest.Must(t, err)
	if built := indexOf(t, m); !bytes.Equal(built, want) {
		t.Errorf("the index is now\n%q, the golden one is\n%q", built, want)
	}
	text, err := os.ReadFile(textPath)
	stagingtest.Must(t, err)
	opened, err := OpenIndex(binaryPath)
	stagingtest.Must(t, err)
	if !bytes.Equal(goldenText(t, opened), text) {
		t.Errorf("the golden index holds\n%s, its description is\n%s", goldenText(t, opened), text)
	}
}

// TestIndexLayout reads single fields at the offsets in docs/wire/README.md.
func TestIndexLayout(t *testing.T) {
	data := indexOf(t, goldenIndex())
	u32 := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
	u64 := func(at int) int { return int(binary.LittleEndian.Uint64(data[at:])) }
	const n, members, head = 9, 4, 24
	sizes := 128 + head
	times := sizes + 8*n + head
	labels := times + 8*n + head
	folders := labels + n + 7 + head
	ends := folders + n + 7
	offsets := ends + 4*n + 4 + head
	formats := offsets + 4*n + 4
	sums := formats + n + 7
	memberEnds := sums + 8*n
	memberOffsets := memberEnds + 4*n + 4 + head
	memberSizes := memberOffsets + 4*members + head
	memberKinds := memberSizes + 4*members + head
	table := memberKinds + members + 4
	kinds := table + 4*4 + len("catcat/deep\nfolderdög")
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"N", u64(8), n},
		{"flags", u32(16), 15},
		{"folders", u32(20), 4},
		{"place of the folder table", u64(24), table},
		{"place of the names", u64(32), kinds + 4 + 3*4 + len("jpgseg.pngcls")},
		{"bytes of the names", u64(40), u32(ends + 4*(n-1))},
		{"place of the root", u64(48), u64(32) + u64(40)},
		{"bytes of the root", u64(56), len("/data/golden ä")},
		{"least size", u64(sizes - 24), 0},
		{"unit of sizes", u64(sizes - 16), 1},
		{"width of sizes", u32(sizes - 8), 8},
		{"width of labels", u32(labels - 8), 1},
		{"size of 2", u64(sizes + 8*2), 5_000_000_000},
		{"earliest time", u64(times - 24), -1},
		{"time of 2", u64(times + 8*2), 0},
		{"time of 1", u64(times + 8*1), 1_700_000_000_000_000_001},
		{"label of 3", int(data[labels+3]), 1},
		{"folder of 2", int(data[folders+2]), 2},
		{"name end of 0", u32(ends), len("1.png")},
		{"unit of offsets", u64(offsets - 16), 4},
		{"offset of 4", 4 * u32(offsets+4*4), 5_000_000_512},
		{"format of 6", int(data[formats+6]), 3},
		{"checksum of 4", u64(sums + 8*4), 0x0123456789abcdef},
		{"end of the members of 4", u32(memberEnds + 4*4), 3},
		{"end of the members of 8", u32(memberEnds + 4*8), members},
		{"first offset of a member", u64(memberOffsets - 24), 512},
		{"offset of member 2", u32(memberOffsets+4*2)*u64(memberOffsets-16) + 512, 6_000_000_000},
		{"size of member 1", u32(memberSizes + 4), 9_998},
		{"kind of member 3", int(data[memberKinds+3]), 2},
		{"length of folder 1", u32(table + 4), 3},
		{"number of kinds", u32(kinds), 3},
		{"length of kind 0", u32(kinds + 4), 3},
		{"place of the classes", u64(64), u64(48) + u64(56)},
		{"classes", u64(72), 2},
		{"first byte of the digest", int(data[80]), int(goldenIndex().Identity().Digest[0])},
		{"first byte of the contents' digest", int(data[96]), 0},
		{"first byte of the times' digest", int(data[112]), int(goldenIndex().Identity().Times[0])},
		{"length of class 1", u32(u64(64) + 4 + 3), len("dög")},
		{"bytes", len(data), u64(64) + 4 + 3 + 4 + len("dög") + 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %d, want %d", c.what, c.got, c.want)
		}
	}
	m := goldenIndex()
	m.offsets, m.formats, m.checksums, m.members = column[int64]{}, nil, nil, memberTable{}
	if data = indexOf(t, m); u32(16) != 0 || u64(24) != offsets-head {
		t.Errorf("without offsets: flags %d, folder table at %d, want 0, %d", u32(16), u64(24), offsets)
	}
}

// TestIndexErrors cuts an index off at each byte, and changes each byte: it is refused.
func TestIndexErrors(t *testing.T) {
	data := indexOf(t, goldenIndex())
	for n := range len(data) {
		if _, err := parseIndex(data[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are read without an error", n, len(data))
		}
		data[n] ^= 0x10
		if _, err := parseIndex(data); err == nil {
			t.Fatalf("byte %d of %d may change unseen", n, len(data))
		}
		data[n] ^= 0x10
	}
	path := filepath.Join(t.TempDir(), "index")
	_, err := OpenIndex(path)
	stagingtest.WantError(t, err, "staging: sample index: ", path, "no such file")
	stagingtest.Must(t, os.WriteFile(path, make([]byte, 100), 0o644))
	_, err = OpenIndex(path)
	stagingtest.WantError(t, err, "staging: sample index "+path, "is not a sample index")
	stagingtest.Must(t, os.WriteFile(path, data[:200], 0o644))
	_, err = OpenIndex(path)
	stagingtest.WantError(t, err, "staging: sample index "+path, "is truncated or damaged")
	err = WriteIndex(filepath.Join(path, "x"), goldenIndex())
	stagingtest.WantError(t, err, "staging: write sample index ")
}

// indexOf returns the index of m.
func indexOf(t *testing.T, m *Manifest) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "index")
	stagingtest.Must(t, WriteIndex(path, m))
	data, err := os.ReadFile(path)
	stagingtest.Must(t, err)
	return data
}
