package staging

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler"
	"rankpool/staging/shards"
)

// tarFile makes a tar file of members, each a name, "=" and its content.
func tarFile(t testing.TB, members ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, member := range members {
		name, content, _ := strings.Cut(member, "=")
		must(t, w.WriteHeader(&tar.Header{
			Name: name, Size: int64(len(content)), Mode: 0o644,
			Typeflag: tar.TypeReg,
		}))
		_, err := w.Write([]byte(content))
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

// recordFile makes a TFRecord file.
func recordFile(records ...string) (out []byte) {
	for _, record := range records {
		head := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
		out = binary.LittleEndian.AppendUint32(append(out, head...), shards.MaskedCRC(head))
		out = binary.LittleEndian.AppendUint32(append(out, record...), shards.MaskedCRC([]byte(record)))
	}
	return out
}

// arrayFile makes a .npy file of bytes, in rows of two.
func arrayFile(data string) []byte {
	header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 2), }\n",
		len(data)/2)
	return append(append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), 0), header+data...)
}

// put writes a file below root.
func put(t testing.TB, root, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(root, name)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, data, 0o644))
	must(t, os.Chtimes(path, modTime, modTime))
	return path
}

// fetched fetches sample id.
func fetched(t testing.TB, m *Manifest, id scheduler.SampleID, opt FetchOptions) (
	string, Stats, error,
) {
	t.Helper()
	f := NewFetcher(m, opt)
	defer f.Close()
	into := make([]byte, m.Size(id))
	done := make(chan error)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	err := <-done
	return string(into), f.Stats(), err
}

// described lists "label format kind=content …" of every sample.
func described(t testing.TB, m *Manifest) (list []string) {
	t.Helper()
	for id := range scheduler.SampleID(m.Len()) {
		data, _, err := fetched(t, m, id, FetchOptions{})
		must(t, err)
		text := fmt.Sprintf("%d %s", m.Label(id), m.Format(id))
		for _, member := range m.Members(id) {
			text += " " + member.Kind + "=" + data[:member.Size]
			data = data[member.Size:]
		}
		list = append(list, text+data)
	}
	return list
}

func TestScanShards(t *testing.T) {
	cls := []string{"a.jpg=A", "a.cls=1", "b.jpg=B", "b.cls=3"}
	for _, c := range []struct {
		name             string
		files            map[string][]byte
		samples, classes []string
	}{
		{"all formats in class folders", map[string][]byte{
			"cat/1.JPG": []byte("one"), "cat/s.tar": tarFile(t, "x/a.jpg=A", "x/a.json={}", "b.jpg=B"),
			"dog/r.tfrecord": recordFile("R", "", "SS"), "dog/t.tfrec-00000-of-00001": recordFile("T"),
			"dog/rows.npy": arrayFile("1122"), "dog/empty.tar": tarFile(t), "emu/9": nil,
		}, []string{
			"0 file jpg=one", "0 tar jpg=A json={}", "0 tar jpg=B", "1 tfrecord tfrecord=R",
			"1 tfrecord tfrecord=",
			"1 tfrecord tfrecord=SS", "1 npy npy=11", "1 npy npy=22", "1 tfrecord tfrecord=T", "2 file =",
		}, []string{"cat", "dog", "emu"}},
		{
			"class numbers",
			map[string][]byte{"s.tar": tarFile(t, cls...), "sub/t.tar": tarFile(t, "c.cls=0")},
			[]string{"1 tar jpg=A cls=1", "3 tar jpg=B cls=3", "0 tar cls=0"},
			[]string{"0", "1", "2", "3"},
		},
		{
			"class numbers beside class folders",
			map[string][]byte{"s.tar": tarFile(t, cls...), "cat/1": []byte("c"), "dog/1": []byte("d")},
			[]string{"1 tar jpg=A cls=1", "3 tar jpg=B cls=3", "0 file =c", "1 file =d"},
			[]string{"cat", "dog", "2", "3"},
		},
		{
			"no classes",
			map[string][]byte{"s.tar": tarFile(t, "a.jpg=A")},
			[]string{"0 tar jpg=A"},
			[]string{""},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, data := range c.files {
				put(t, root, name, data)
			}
			m := scan(t, root)
			if got := described(t, m); !slices.Equal(got, c.samples) ||
				!slices.Equal(m.Classes(), c.classes) {
				t.Errorf("classes %q, samples\n%q, want %q\n%q", m.Classes(), got, c.classes, c.samples)
			}
			whole, err := Scan(t.Context(), root, ScanOptions{WholeFiles: true})
			if len(c.files) != 1 && c.name != "all formats in class folders" { // shards beside folders
				wantError(t, err, "s.tar lies beside class folders")
			} else if must(t, err); whole.Len() != len(c.files) || whole.offsets != nil {
				t.Errorf("as files there are %d samples, want %d", whole.Len(), len(c.files))
			}
		})
	}
}

func TestScanShardErrors(t *testing.T) {
	whole := tarFile(t, "a.jpg=A", "b.jpg=B")
	for _, c := range []struct {
		name string
		data []byte
		want string
	}{
		{
			"s.tar", whole[:600],
			`s.tar is truncated: its next header or end mark at byte 1024 needs 1536 bytes of the file, which has 600`,
		},
		{"s.tar", nil, "s.tar is truncated"},
		{"s.tfrecord", recordFile("R")[:10], "s.tfrecord is truncated: record 0 at byte 0"},
		{"s.npy", []byte("PK"), "s.npy is truncated in its header, or is not a .npy file"},
		{"s.tar", tarFile(t), "holds no sample"},
	} {
		root := t.TempDir()
		put(t, root, c.name, c.data)
		_, err := Scan(t.Context(), root, ScanOptions{})
		wantError(t, err, "staging: ", root, c.want)
	}
	root := t.TempDir()
	put(t, root, "s.tar", whole)
	put(t, root, "cat/1", nil)
	_, err := Scan(t.Context(), root, ScanOptions{})
	wantError(t, err, "s.tar lies beside class folders and belongs to no class")
	f := shardFile{
		scannedFile{"s.tar", int64(len(whole)), modTime.UnixNano() - 1},
		filepath.Join(root, "s.tar"), FormatTar, nil,
	}
	wantError(t, f.read(t.Context()), "s.tar changes while it is indexed")
	ended, end := context.WithCancel(t.Context())
	end()
	if err := f.read(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a scan that ended gives %v", err)
	}
}

func TestFormats(t *testing.T) {
	root := t.TempDir()
	for name, data := range map[string][]byte{
		"a/1": nil, "a/2": nil, "a/x.npy": arrayFile("112233"), "a/s.tar": tarFile(t, "a.x=", "b.x="),
		"b/s.tar": tarFile(t, "a.x="),
	} {
		put(t, root, name, data)
	}
	got := scan(t, root).Formats()
	if want := []FormatCount{{FormatFile, 2, 2}, {FormatTar, 3, 2}, {FormatNPY, 3, 1}}; !slices.Equal(
		got, want) {
		t.Errorf("formats %v, want %v", got, want)
	}
}

// TestFormatByName checks which names are shards.
func TestFormatByName(t *testing.T) {
	for name, want := range map[string]Format{
		"a.tar": FormatTar, "A.TAR": FormatTar, "a.tar.gz": FormatFile, "tar": FormatFile,
		"a.npy": FormatNPY, "a.npz": FormatFile,
		"a.tfrecord": FormatTFRecord, "a.tfrecords": FormatTFRecord, "a.tfrec": FormatTFRecord,
		"a.tfrecx":                  FormatFile,
		"a.tfrecord-00001-of-00010": FormatTFRecord, "a.tfrecord-1": FormatFile,
		"train-00001-of-00010": FormatFile,
	} {
		if got := formatByName(name); got != want {
			t.Errorf("%s is of format %s, want %s", name, got, want)
		}
	}
}

// TestReadRecordChecksum damages each byte of a record after the scan: its data are never
// delivered.
func TestReadRecordChecksum(t *testing.T) {
	root := t.TempDir()
	data := recordFile("0123456789", "next")
	path := put(t, root, "r.tfrecord", data)
	m := scan(t, root)
	for i := 12; i < 12+10+4; i++ {
		data[i] ^= 1
		put(t, root, "r.tfrecord", data)
		data[i] ^= 1
		_, stats, err := fetched(t, m, 0, FetchOptions{})
		wantError(t, err, "staging: sample 0 (r.tfrecord): holds a damaged record", "(tried 2 times)")
		if sample := (*SampleError)(nil); !errors.Is(err, ErrChecksum) || !errors.As(err, &sample) ||
			stats.Retries != 1 {
			t.Errorf("%v after %d retries", err, stats.Retries)
		}
		next, _, err := fetched(t, m, 1, FetchOptions{})
		if must(t, err); next != "next" {
			t.Errorf("record 1 is %q", next)
		}
	}
	must(t, os.Truncate(path, int64(len(data)-2)))
	must(t, os.Chtimes(path, modTime, modTime))
	_, _, err := fetched(t, m, 1, FetchOptions{})
	wantError(t, err, fmt.Sprintf("has %d bytes, the manifest says at least %d", len(data)-2,
		len(data)))
}

// TestReadChecksums changes bytes behind the back of size and modification time.
func TestReadChecksums(t *testing.T) {
	root := t.TempDir()
	put(t, root, "1", []byte("good"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=x"))
	m := scan(t, root)
	sums := []uint64{ChecksumOf([]byte("good")), ChecksumOf([]byte("goodx"))}
	m = m.WithChecksums(sums)
	for id := range scheduler.SampleID(2) {
		_, _, err := fetched(t, m, id, FetchOptions{})
		must(t, err)
	}
	put(t, root, "1", []byte("evil"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=y"))
	for id := range scheduler.SampleID(2) {
		_, stats, err := fetched(t, m, id, FetchOptions{})
		wantError(t, err, fmt.Sprintf("staging: sample %d ", id),
			"has other bytes than the manifest says: their checksum is wrong; index")
		if !errors.Is(err, ErrChecksum) || stats.Retries != 1 || stats.Reads != 0 {
			t.Errorf("%v, counters %+v", err, stats)
		}
		_, _, err = fetched(t, m.WithChecksums(nil), id, FetchOptions{})
		must(t, err)
		_, _, err = fetched(t, m.WithChecksums(make([]uint64, 2)), id, FetchOptions{})
		must(t, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for one checksum of two samples")
		}
	}()
	m.WithChecksums(sums[:1])
}

// memory is a StorageFile that gives at most some bytes at a time.
type memory struct {
	data  []byte
	most  int
	calls int
}

func (f *memory) ReadAt(p []byte, off int64) (int, error) {
	f.calls++
	return bytes.NewReader(f.data).ReadAt(p[:min(len(p), f.most)], off)
}

func (f *memory) Stat() (int64, int64, error) { return int64(len(f.data)), 0, nil }
func (f *memory) Forget(int64, int64)         {}
func (f *memory) Close() error                { return nil }

// vectorMemory reads into several buffers, too.
type vectorMemory struct{ memory }

func (f *vectorMemory) ReadVector(buffers [][]byte, off int64) (n int, err error) {
	f.calls++
	for _, p := range buffers {
		p = p[:min(len(p), f.most-n)]
		more, err := bytes.NewReader(f.data).ReadAt(p, off)
		n, off = n+more, off+int64(more)
		if err != nil {
			return n, nil //nolint:nilerr // as preadv: what there is
		}
	}
	return n, nil
}

// TestReadPieces reads random pieces of a file that gives any number of bytes at a time, and may be
// too short.
func TestReadPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 300_000).Draw(t, "size")
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i * 7 >> 3)
		}
		var pieces []piece
		want, at := 0, int64(0)
		for range rapid.IntRange(1, 6).Draw(t, "pieces") {
			at += rapid.SampledFrom([]int64{0, 1, 512, maxGapBytes, maxGapBytes + 1, -5}).Draw(t, "gap")
			at = max(0, at)
			p := piece{at, make([]byte, rapid.SampledFrom([]int{0, 1, 4, 5000, 40_000}).Draw(t, "length"))}
			pieces, at = append(pieces, p), p.end()
			want += len(p.into)
		}
		most := rapid.SampledFrom([]int{999, 70_000, size}).Draw(t, "most")
		for _, file := range []StorageFile{
			&memory{data: data, most: most},
			&vectorMemory{memory{data: data, most: most}},
		} {
			for _, p := range pieces {
				clear(p.into)
			}
			got, err := readPieces(file, pieces)
			if err != nil || got > want || (got < want) != slices.ContainsFunc(pieces, func(p piece) bool {
				return len(p.into) > 0 && p.end() > int64(size)
			}) {
				t.Fatalf("%d of %d bytes, %v", got, want, err)
			}
			for _, p := range pieces {
				if got == want && len(p.into) > 0 && !bytes.Equal(p.into, data[p.offset:p.end()]) {
					t.Fatalf("the bytes at %d are others", p.offset)
				}
			}
		}
	})
}

// TestReadPiecesTogether checks that a sample's members are read by one request.
func TestReadPiecesTogether(t *testing.T) {
	root := t.TempDir()
	put(t, root, "s.tar", tarFile(t, "a.jpg="+strings.Repeat("j", 5000), "a.json={}", "a.cls=1"))
	m := scan(t, root)
	data, err := os.ReadFile(m.Path(0))
	must(t, err)
	file := &vectorMemory{memory{data: data, most: len(data)}}
	into := make([]byte, m.Size(0))
	got, err := readPieces(file, m.appendPieces(nil, 0, into, nil))
	if err != nil || got != len(into) || file.calls != 1 || string(into[4999:]) != "j{}1" {
		t.Errorf("%d of %d bytes by %d calls, %v", got, len(into), file.calls, err)
	}
}
