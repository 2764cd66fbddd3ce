package index

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

	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/shards"
	"rankpool/staging/stagingtest"
	"rankpool/staging/storage"
)

// tarFile makes a tar file of members, each a name, "=" and its content.
func tarFile(t testing.TB, members ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, member := range members {
		name, content, _ := strings.Cut(member, "=")
		stagingtest.Must(t, w.WriteHeader(&tar.Header{
			Name: name, Size: int64(len(content)), Mode: 0o644,
			Typeflag: tar.TypeReg,
		}))
		_, err := w.Write([]byte(content))
		stagingtest.Must(t, err)
	}
	stagingtest.Must(t, w.Close())
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
	stagingtest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	stagingtest.Must(t, os.WriteFile(path, data, 0o644))
	stagingtest.Must(t, os.Chtimes(path, stagingtest.ModTime, stagingtest.ModTime))
	return path
}

// fetched fetches sample id.
func fetched(t testing.TB, m *dataset.Manifest, id scheduler.SampleID, opt storage.FetchOptions) (
	string, storage.Stats, error,
) {
	t.Helper()
	f := storage.NewFetcher(m, opt)
	defer f.Close()
	into := make([]byte, m.Size(id))
	done := make(chan error)
	f.Fetch(id, into, 0, func(err error) { done <- err })
	err := <-done
	return string(into), f.Stats(), err
}

// described lists "label format kind=content …" of every sample.
func described(t testing.TB, m *dataset.Manifest) (list []string) {
	t.Helper()
	for id := range scheduler.SampleID(m.Len()) {
		data, _, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.Must(t, err)
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
			if len(c.files) != 1 &&
				c.name != "all formats in class folders" { // shards beside folders
				stagingtest.WantError(t, err, "s.tar is beside class folders")
			} else if stagingtest.Must(t, err); whole.Formats()[0].Samples != whole.Len() {
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
		stagingtest.WantError(t, err, "staging: ", root, c.want)
	}
	root := t.TempDir()
	put(t, root, "s.tar", whole)
	put(t, root, "cat/1", nil)
	_, err := Scan(t.Context(), root, ScanOptions{})
	stagingtest.WantError(t, err, "s.tar is beside class folders and belongs to no class")
	f := shardFile{
		scannedFile{"s.tar", int64(len(whole)), stagingtest.ModTime.UnixNano() - 1},
		filepath.Join(root, "s.tar"), dataset.FormatTar, nil,
	}
	stagingtest.WantError(t, f.read(t.Context()), "s.tar changes while it is indexed")
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
	if want := "[{file 2 2} {tar 3 2} {npy 3 1}]"; fmt.Sprint(got) != want {
		t.Errorf("formats %v, want %v", got, want)
	}
}

// TestFormatByName checks which names are shards.
func TestFormatByName(t *testing.T) {
	for name, want := range map[string]dataset.Format{
		"a.tar": dataset.FormatTar, "A.TAR": dataset.FormatTar,
		"a.tar.gz": dataset.FormatFile, "tar": dataset.FormatFile,
		"a.npy": dataset.FormatNPY, "a.npz": dataset.FormatFile,
		"a.tfrecord": dataset.FormatTFRecord, "a.tfrecords": dataset.FormatTFRecord,
		"a.tfrec":                   dataset.FormatTFRecord,
		"a.tfrecx":                  dataset.FormatFile,
		"a.tfrecord-00001-of-00010": dataset.FormatTFRecord, "a.tfrecord-1": dataset.FormatFile,
		"train-00001-of-00010": dataset.FormatFile,
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
		_, stats, err := fetched(t, m, 0, storage.FetchOptions{})
		stagingtest.WantError(
			t,
			err,
			"staging: sample 0 (r.tfrecord): holds a damaged record",
			"(tried 2 times)",
		)
		if sample := (*storage.SampleError)(nil); !errors.Is(err, storage.ErrChecksum) ||
			!errors.As(err, &sample) ||
			stats.Retries != 1 {
			t.Errorf("%v after %d retries", err, stats.Retries)
		}
		next, _, err := fetched(t, m, 1, storage.FetchOptions{})
		if stagingtest.Must(t, err); next != "next" {
			t.Errorf("record 1 is %q", next)
		}
	}
	stagingtest.Must(t, os.Truncate(path, int64(len(data)-2)))
	stagingtest.Must(t, os.Chtimes(path, stagingtest.ModTime, stagingtest.ModTime))
	_, _, err := fetched(t, m, 1, storage.FetchOptions{})
	stagingtest.WantError(
		t,
		err,
		fmt.Sprintf("has %d bytes, the manifest says at least %d", len(data)-2,
			len(data)),
	)
}

// TestReadChecksums changes bytes without changing size or modification time.
func TestReadChecksums(t *testing.T) {
	root := t.TempDir()
	put(t, root, "1", []byte("good"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=x"))
	m := scan(t, root)
	sums := []uint64{dataset.ChecksumOf([]byte("good")), dataset.ChecksumOf([]byte("goodx"))}
	m = m.WithChecksums(sums)
	for id := range scheduler.SampleID(2) {
		_, _, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.Must(t, err)
	}
	put(t, root, "1", []byte("evil"))
	put(t, root, "s.tar", tarFile(t, "a.jpg=good", "a.cls=y"))
	for id := range scheduler.SampleID(2) {
		_, stats, err := fetched(t, m, id, storage.FetchOptions{})
		stagingtest.WantError(t, err, fmt.Sprintf("staging: sample %d ", id),
			"has other bytes than the manifest says: their checksum is wrong; index")
		if !errors.Is(err, storage.ErrChecksum) || stats.Retries != 1 || stats.Reads != 0 {
			t.Errorf("%v, counters %+v", err, stats)
		}
		_, _, err = fetched(t, m.WithChecksums(nil), id, storage.FetchOptions{})
		stagingtest.Must(t, err)
		_, _, err = fetched(t, m.WithChecksums(make([]uint64, 2)), id, storage.FetchOptions{})
		stagingtest.Must(t, err)
	}
	defer func() {
		if recover() == nil {
			t.Error("no panic for one checksum of two samples")
		}
	}()
	m.WithChecksums(sums[:1])
}
