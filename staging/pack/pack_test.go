package pack

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
	"rankpool/staging/storage"
)

// drawName draws names with line feeds, quotes, dots and invalid UTF-8, also longer than a tar
// header holds.
func drawName(t *rapid.T, label string) string {
	letter := rapid.SampledFrom([]string{
		"a", "B", ".", ".", "-", "\n", `"`, "ä", "\U0001F600", "\xff",
		"\xc3", " ",
	})
	name := strings.Join(rapid.SliceOfN(letter, 1, 8).Draw(t, label), "")
	if rapid.IntRange(0, 9).Draw(t, label+" is long") == 0 {
		name += strings.Repeat("x", 120)
	}
	return "n" + strings.ReplaceAll(name, "cls", "")
}

// drawData draws a data set: files with or without class folders, and tar shards.
func drawData(t *rapid.T, tb testing.TB, root string) {
	tree := map[string]string{}
	classes := []string{""}
	if rapid.Bool().Draw(t, "classes") {
		class := rapid.Custom(func(t *rapid.T) string { return drawName(t, "class") })
		classes = rapid.SliceOfNDistinct(class, 1, 3, rapid.ID).Draw(t, "class names")
	}
	for i := range rapid.IntRange(1, 25).Draw(t, "files") {
		name := drawName(t, "name") + fmt.Sprint(i)
		if rapid.IntRange(0, 3).Draw(t, "no name but an extension") > 0 {
			name = fmt.Sprint(i) + name
		}
		if strings.HasSuffix(name, ".tar") {
			continue
		}
		size := rapid.SampledFrom([]int{0, 1, 511, 512, 513, 3000}).Draw(t, "size")
		tree[filepath.Join(rapid.SampledFrom(classes).Draw(t, "in"), name)] = strings.Repeat(
			fmt.Sprint(i), size)[:size]
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "shards") {
		tree[filepath.Join(classes[0], fmt.Sprintf("s%d.tar", i))] = tarOf(tb,
			"a.JPG", "jpeg", "a.json", "{}", "b.jpg", "", "c/d.x.y", strings.Repeat("y", 700))
	}
	tree[filepath.Join(classes[0], "always")] = "there"
	grow(tb, root, tree)
}

func TestPackGivesTheSameSamples(t *testing.T) {
	by := startPython(t)
	rapid.Check(t, func(r *rapid.T) {
		//nolint:usetesting // one per draw; t.TempDir would keep them all until the end
		base, err := os.MkdirTemp(t.TempDir(), "")
		stagingtest.Must(t, err)
		defer os.RemoveAll(base)
		src, dest := filepath.Join(base, "src"), filepath.Join(base, "dest")
		drawData(r, t, src)
		m := scan(t, src)
		order := rapid.Permutation(AsIs(m.Len())).Draw(r, "order")
		order = order[:rapid.IntRange(1, len(order)).Draw(r, "samples")]
		opt := Options{Dest: dest, Order: order, ShardBytes: rapid.Int64Range(1, 20_000).Draw(
			r, "shard size")}
		report := pack(t, m, opt)
		checkPack(t, by, m, order, dest)
		if report.Packed != report.Shards || report.Samples != len(order) {
			r.Fatalf("report %+v of %d samples", report, len(order))
		}
		for name, text := range shardsOf(t, dest) {
			if int64(len(text)) > opt.ShardBytes && strings.Count(text, "\x00ustar") > 6 {
				r.Fatalf("%s has %d bytes, at most %d are allowed", name, len(text), opt.ShardBytes)
			}
		}
	})
}

// checkPack compares a pack with its source, read by three readers: the manifest's, the scan's, and
// Python's tarfile.
func checkPack(t testing.TB, by *python, m *dataset.Manifest, order []draw.SampleID,
	dest string,
) {
	t.Helper()
	packed, scanned := open(t, dest), scan(t, dest)
	if packed.Len() != len(order) || scanned.Len() != len(order) {
		t.Fatalf("%d samples by the manifest, %d by a scan, want %d", packed.Len(), scanned.Len(),
			len(order))
	}
	byPython := by.read(t, dest)
	fetcher := storage.NewFetcher(packed, storage.FetchOptions{})
	defer fetcher.Close()
	if !slices.Equal(packed.Classes(), m.Classes()) {
		t.Errorf("classes %q, want %q", packed.Classes(), m.Classes())
	}
	labelled := len(m.Classes()) > 1 || m.Classes()[0] != ""
	for place, id := range order {
		at := draw.SampleID(place)
		want := plain(t, m, id)
		if got := read(t, packed, fetcher, at); got != want || packed.Label(at) != m.Label(id) {
			t.Fatalf("sample %d of %q is %.20q with label %d, want %.20q with %d", place, m.RelPath(id), got,
				packed.Label(at), want, m.Label(id))
		}
		if labelled && scanned.Label(at) != m.Label(id) {
			t.Fatalf("sample %d has the label %d in its shard, want %d", place, scanned.Label(at),
				m.Label(id))
		}
		wantFiles, text := map[string]string{}, want
		for i, member := range m.Members(id) {
			kind := member.Kind
			if kind == "" {
				kind = "bin"
			}
			if got := packed.Members(at)[i]; got.Kind != kind || got.Size != member.Size {
				t.Fatalf("member %d of sample %d is %v, want %v", i, place, got, member)
			}
			wantFiles[kind], text = text[:member.Size], text[member.Size:]
		}
		if labelled {
			wantFiles["cls"] = fmt.Sprint(m.Label(id))
		}
		if got := byPython[place]; got.Key != fmt.Sprintf("%09d", place) ||
			!maps.Equal(got.files(t), wantFiles) {
			t.Fatalf("sample %d is %q with %q for Python, want %q", place, got.Key, got.files(t), wantFiles)
		}
	}
}

// A pythonSample is a sample as pythonReader finds it.
type pythonSample struct {
	Key   string
	Files map[string]string // bytes by extension, both in hexadecimal
}

func (s pythonSample) files(t testing.TB) map[string]string {
	decoded := map[string]string{}
	for kind, text := range s.Files {
		a, err := hex.DecodeString(kind)
		stagingtest.Must(t, err)
		b, err := hex.DecodeString(text)
		stagingtest.Must(t, err)
		decoded[string(a)] = string(b)
	}
	return decoded
}

// pythonReader groups the members of tar files as WebDataset's group_by_keys does: neighbours with
// the same path up to the first dot of the base name. It fails on what no packer may write: owners,
// times, and a missing end. It reads lines with the names of tar files, and answers each with a
// line of samples.
const pythonReader = `
import json, os, sys, tarfile
for line in sys.stdin:
    samples = []
    for name in json.loads(line):
        assert os.path.getsize(name) % 512 == 0, name
        assert open(name, "rb").read()[-1024:] == bytes(1024), name
        with tarfile.open(name) as archive:
            for member in archive:
                assert member.isreg() and member.mtime == 0, member
                assert (member.uid, member.gid) == (0, 0), member
                assert member.mode == 0o644, member
                key, _, extension = member.name.partition(".")
                if not samples or samples[-1]["Key"] != key:
                    samples.append({"Key": key, "Files": {}})
                extension = os.fsencode(extension).hex()
                assert extension not in samples[-1]["Files"], member
                samples[-1]["Files"][extension] = archive.extractfile(member).read().hex()
    print(json.dumps(samples), flush=True)
`

// A python is a process that reads tar files.
type python struct {
	in  *json.Encoder
	out *json.Decoder
}

// startPython starts a process that ends with the test.
func startPython(t *testing.T) *python {
	t.Helper()
	cmd := exec.Command("python3", "-c", pythonReader)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	stagingtest.Must(t, err)
	out, err := cmd.StdoutPipe()
	stagingtest.Must(t, err)
	stagingtest.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("python3: %v", err)
		}
	})
	return &python{json.NewEncoder(in), json.NewDecoder(out)}
}

// read reads the shards of a folder by Python's tarfile.
func (p *python) read(t testing.TB, dest string) (samples []pythonSample) {
	t.Helper()
	names := []string{}
	for _, name := range slices.Sorted(maps.Keys(shardsOf(t, dest))) {
		names = append(names, filepath.Join(dest, name))
	}
	stagingtest.Must(t, p.in.Encode(names))
	stagingtest.Must(t, p.out.Decode(&samples))
	return samples
}

func TestPackOfEveryFormat(t *testing.T) {
	by := startPython(t)
	src, dest := t.TempDir(), filepath.Join(t.TempDir(), "dest")
	grow(t, src, map[string]string{
		"a.NPY": "array",
		"s.tar": tarOf(t, "x.cls", "text", "x.jpg", "J"),
		"BLOB":  "read",
	})
	m := scan(t, src)
	pack(t, m, Options{Dest: dest, ShardBytes: 3 << 10})
	var got []string
	for _, s := range by.read(t, dest) {
		got = append(got, fmt.Sprintf("%q", s.files(t)))
	}
	want := []string{
		`map["bin":"read"]`, `map["npy":"array"]`, `map["cls":"text" "jpg":"J"]`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("samples %v, want %v", got, want)
	}
}

func TestRanksWriteTheSameShards(t *testing.T) {
	by := startPython(t)
	m := scan(t, numbered(t, 60))
	var want map[string]string
	for _, ranks := range []int{1, 2, 4} {
		dest := filepath.Join(t.TempDir(), "dest")
		opt := Options{Dest: dest, Order: Shuffled(m.Len(), 7), ShardBytes: 10 << 10}
		end := func() {}
		if ranks > 1 {
			opt.Group, end = groupOf(t, ranks)
		}
		report := pack(t, m, opt)
		end()
		if report.Ranks != ranks || report.Shards < 8 {
			t.Fatalf("report %+v of %d ranks", report, ranks)
		}
		checkPack(t, by, m, opt.Order, dest)
		got := shardsOf(t, dest)
		if want == nil {
			want = got
		}
		if !maps.Equal(got, want) {
			t.Errorf("%d ranks write other shards than one", ranks)
		}
	}
}

func TestImportantSamplesComeFirst(t *testing.T) {
	nan := float32(math.NaN())
	got := ByImportance([]float32{1, nan, 3, 1, float32(math.Inf(1)), -2})
	if want := []draw.SampleID{4, 2, 0, 3, 5, 1}; !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	m := scan(t, numbered(t, 9))
	scores := make([]float32, m.Len())
	for i := range scores {
		scores[i] = float32(i * 4 % 9)
	}
	dest := filepath.Join(t.TempDir(), "dest")
	pack(t, m, Options{Dest: dest, Order: ByImportance(scores), ShardBytes: 4 << 10})
	packed := open(t, dest)
	for i := range packed.Len() {
		id := slices.Index(scores, float32(m.Len()-1-i))
		if got, want := plain(t, packed, draw.SampleID(i)),
			plain(t, m, draw.SampleID(id)); got != want {
			t.Errorf("place %d holds %.20q, want %.20q", i, got, want)
		}
		if i > 0 && packed.RelPath(draw.SampleID(i)) < packed.RelPath(draw.SampleID(i-1)) {
			t.Errorf("sample %d lies in a shard before that of sample %d", i, i-1)
		}
	}
}

func TestShuffledDependsOnTheSeed(t *testing.T) {
	a, b, c := Shuffled(100, 1), Shuffled(100, 1), Shuffled(100, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) || slices.Equal(a, AsIs(100)) {
		t.Error("orders do not follow their seeds")
	}
	slices.Sort(a)
	if !slices.Equal(a, AsIs(100)) {
		t.Errorf("%v is not a permutation", a)
	}
}

func TestAPackMayMove(t *testing.T) {
	by := startPython(t)
	m := scan(t, numbered(t, 5))
	base := t.TempDir()
	pack(t, m, Options{Dest: filepath.Join(base, "a")})
	stagingtest.Must(t, os.Rename(filepath.Join(base, "a"), filepath.Join(base, "b")))
	checkPack(t, by, m, AsIs(m.Len()), filepath.Join(base, "b"))
}

func TestMeasureIsExact(t *testing.T) {
	src := t.TempDir()
	grow(t, src, map[string]string{
		"a/1.jpg": "x", "a/2.jpg": "y",
		"b/" + strings.Repeat("n", 9) + "." + strings.Repeat("long", 50): "z",
	})
	large, err := os.Create(filepath.Join(src, "b", "large.jpg"))
	stagingtest.Must(t, err)
	stagingtest.Must(t, large.Truncate(9<<30))
	stagingtest.Must(t, large.Close())
	m := scan(t, src)
	p, err := NewPlan(m, AsIs(m.Len()), 1)
	stagingtest.Must(t, err)
	for place := range m.Len() {
		want := int64(endBytes)
		files, err := p.files(nil, place)
		stagingtest.Must(t, err)
		for _, f := range files {
			head, err := p.header(&f, place)
			stagingtest.Must(t, err)
			want += int64(len(head)) + (f.size+511)/512*512
		}
		if got := p.Bytes(place); got != want {
			t.Errorf("shard %d (%s) is planned with %d bytes, and has %d", place,
				m.RelPath(draw.SampleID(place)), got, want)
		}
	}
}
