package index

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// noticed scans root, and returns the samples, the classes and what the scan says, without root.
func noticed(t *testing.T, root string, only ...string) (list, classes, said []string) {
	t.Helper()
	m, err := Scan(t.Context(), root, ScanOptions{
		Only: only,
		Notice: func(sentence string) {
			said = append(said, strings.ReplaceAll(sentence, root, "R"))
		},
	})
	stagingtest.Must(t, err)
	return samples(m), m.Classes(), said
}

// TestScanLeavesOut scans trees with files and links that are not samples.
func TestScanLeavesOut(t *testing.T) {
	for _, c := range []struct {
		name                string
		tree                []string
		want, classes, said []string
	}{
		{
			"a file beside class folders",
			[]string{"ant/1.png", "bee/1.png", "classes.txt"},
			[]string{"0 ant/1.png", "1 bee/1.png"},
			[]string{"ant", "bee"},
			[]string{"R holds 1 other file, which is not a sample: 1 .txt"},
		},
		{
			"several, of which some are hidden",
			[]string{
				"a/1", "a/2", "a/3", "b/1", "b/2", ".DS_Store", "README", "x.TXT", "y.txt", "Thumbs.db",
				"train.tar.gz", ".git/config",
			},
			[]string{"0 a/1", "0 a/2", "0 a/3", "1 b/1", "1 b/2"},
			[]string{"a", "b"},
			[]string{"R holds 5 other files, which are not samples: 2 .txt, 1 .db, 1 .gz, " +
				"1 without extension"},
		},
		{
			"files of arrays",
			[]string{"1.h5", "2.h5"},
			[]string{"0 1.h5", "0 2.h5"},
			[]string{""},
			[]string{
				"R holds .h5 files, each of which is one sample: for samples of their rows, run " +
					"\"rankpool index R --rows ROWS -o MANIFEST\"",
			},
		},
		{
			"links that lead nowhere",
			[]string{"a/1", "a/2 -> gone", "b/3 -> 3", "b/4 -> ../a/1/x", "c -> ../gone", "b/5"},
			[]string{"0 a/1", "1 b/5"},
			[]string{"a", "b"},
			[]string{"R holds 4 links that lead nowhere and are left out: c, a/2, b/3 and 1 more"},
		},
		{
			"texts in class folders are samples",
			[]string{"a/1.txt", "a/README", "b/2.json"},
			[]string{"0 a/1.txt", "0 a/README", "1 b/2.json"},
			[]string{"a", "b"},
			nil,
		},
		{
			"files beside images in class folders, one of which has other companions",
			[]string{
				"a/1.jpg", "a/2.PNG", "a/README.md", "b/3.webp", "b/4.jpeg", "b/4.xml", "b/mask.npy",
				"mean.npy", "c/Thumbs.db", "c/deep/5.tif", "all.tar", "all.tfrecord",
			},
			[]string{"0 a/1.jpg", "0 a/2.PNG", "1 b/3.webp", "1 b/4.jpeg", "2 c/deep/5.tif"},
			[]string{"a", "b", "c"},
			[]string{"R holds 7 other files, which are not samples: 2 .npy, 1 .db, 1 .md, 1 .tar, " +
				"1 .tfrecord, 1 .xml"},
		},
		{
			"texts beside other samples",
			[]string{"a/1.wav", "a/2.flac", "a/3.wav", "a/LICENSE", "b/4.wav", "b/4.json", "b/x.png"},
			[]string{"0 a/1.wav", "0 a/2.flac", "0 a/3.wav", "1 b/4.wav", "1 b/x.png"},
			[]string{"a", "b"},
			[]string{"R holds 2 other files, which are not samples: 1 .json, 1 without extension"},
		},
		{
			"flat",
			[]string{"1.txt", "2 -> gone", "README"},
			[]string{"0 1.txt", "0 README"},
			[]string{""},
			[]string{"R holds 1 link that leads nowhere and is left out: 2"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, classes, said := noticed(t, stagingtest.Tree(t, c.tree...))
			if !slices.Equal(list, c.want) || !slices.Equal(classes, c.classes) ||
				!slices.Equal(said, c.said) {
				t.Errorf("samples %q, classes %q, said %q", list, classes, said)
			}
		})
	}
}

// TestScanOnly scans a tree for the files that match patterns.
func TestScanOnly(t *testing.T) {
	root := stagingtest.Tree(t, "a/1.jpg", "a/2.png", "a/d/3.txt", "b/4.txt", "b/5.jpg", "x.png",
		"y.md")
	for _, c := range []struct{ only, want, said []string }{
		{
			[]string{"*.txt"},
			[]string{"0 a/d/3.txt", "1 b/4.txt"},
			[]string{"R holds 5 other files, which are not samples: 2 .jpg, 2 .png, 1 .md"},
		},
		{
			[]string{"b/*", "[0-9].png"},
			[]string{"0 a/2.png", "1 b/5.jpg"},
			[]string{"R holds 5 other files, which are not samples: 2 .txt, 1 .jpg, 1 .md, 1 .png"},
		},
	} {
		list, classes, said := noticed(t, root, c.only...)
		if !slices.Equal(list, c.want) || !slices.Equal(classes, []string{"a", "b"}) ||
			!slices.Equal(said, c.said) {
			t.Errorf("only %q: samples %q, classes %q, said %q", c.only, list, classes, said)
		}
	}
	_, err := Scan(t.Context(), root, ScanOptions{Only: []string{"*.bmp"}})
	stagingtest.WantError(t, err, root, "holds no sample")
}

// TestScanShardNames scans shards under the names that tools give them, beside files that describe
// them.
func TestScanShardNames(t *testing.T) {
	records, text := recordFile("R", "S"), []byte("text")
	for _, c := range []struct {
		name                string
		files               map[string][]byte
		want, classes, said []string
	}{
		{
			"TensorFlow's",
			map[string][]byte{"train-00000-of-01024": records, "train-00001-of-01024": records},
			[]string{
				"0 train-00000-of-01024", "0 train-00000-of-01024", "0 train-00001-of-01024",
				"0 train-00001-of-01024",
			},
			[]string{""},
			nil,
		},
		{
			"TensorFlow's, of other files",
			map[string][]byte{"a/part-0-of-2": text, "a/part-1-of-2": nil, "a/x.record": text},
			[]string{"0 a/part-0-of-2", "0 a/part-1-of-2", "0 a/x.record"},
			[]string{"a"},
			nil,
		},
		{
			"of the object detection API, with class folders",
			map[string][]byte{"a/x.record": records, "b/y.record-0-of-1": records},
			[]string{"0 a/x.record", "0 a/x.record", "1 b/y.record-0-of-1", "1 b/y.record-0-of-1"},
			[]string{"a", "b"},
			nil,
		},
		{
			"beside what describes them",
			map[string][]byte{
				"x.tfrecord-00000-of-00001": records, "dataset_info.json": text, "features.json": text,
				"label.labels.TXT": text, "photo.jpg": text,
			},
			[]string{"0 photo.jpg", "0 x.tfrecord-00000-of-00001", "0 x.tfrecord-00000-of-00001"},
			[]string{""},
			[]string{"R holds 3 other files, which are not samples: 2 .json, 1 .txt"},
		},
		{
			"beside a folder of indexes",
			map[string][]byte{"0.tar": tarFile(t, "a.jpg=A"), "idx/0.idx": text},
			[]string{"0 0.tar"},
			[]string{""},
			[]string{"R holds 1 other file, which is not a sample: 1 .idx"},
		},
		{
			"with a class number in some samples of a shard",
			map[string][]byte{"0.tar": tarFile(t, "a.cls=7", "b.txt=B"), "1.tar": tarFile(t, "c.cls=2")},
			[]string{"0 0.tar", "0 0.tar", "2 1.tar"},
			[]string{"", "1", "2"},
			[]string{`R/0.tar has no class number in a .cls member of the sample "b", though others have ` +
				"one: they do not label its samples"},
		},
		{
			"arrays in class folders, beside one in the root",
			map[string][]byte{"a/0.npy": text, "a/1.npy": nil, "b/2.npy": text, "mean.npy": text},
			[]string{"0 a/0.npy", "0 a/1.npy", "1 b/2.npy"},
			[]string{"a", "b"},
			[]string{"R holds 1 other file, which is not a sample: 1 .npy"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for name, data := range c.files {
				put(t, root, name, data)
			}
			list, classes, said := noticed(t, root)
			if !slices.Equal(list, c.want) || !slices.Equal(classes, c.classes) ||
				!slices.Equal(said, c.said) {
				t.Errorf("samples %q, classes %q, said %q", list, classes, said)
			}
		})
	}
	gzip := []byte("\x1f\x8b\x08")
	for name, data := range map[string][]byte{
		"a.tar.gz": text, "a.TGZ": text, "a.tar.zst": text, "c/a.tfrecord.gz": text,
		"a.tfrecord-00000-of-00002.gz": text, "a-00000-of-00002": gzip, "a-00000-of-00002.gz": gzip,
	} {
		root := t.TempDir()
		put(t, root, name, data)
		_, err := Scan(t.Context(), root, ScanOptions{})
		stagingtest.WantError(t, err, root, name+" is a compressed shard", "--format files")
		m, err := Scan(t.Context(), root, ScanOptions{WholeFiles: true})
		if stagingtest.Must(t, err); m.Len() != 1 {
			t.Errorf("%s: %d samples", name, m.Len())
		}
	}
}

// TestOpenDangling checks that a manifest is not cached while a link leads nowhere: nothing would
// show that it leads somewhere again.
func TestOpenDangling(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/2 -> ../../gone")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, want := range []int{1, 2} {
		m, err := Open(t.Context(), root, OpenOptions{})
		if stagingtest.Must(t, err); m.Len() != want {
			t.Errorf("%d samples, want %d", m.Len(), want)
		}
		stagingtest.Grow(t, root, "../gone")
	}
}

// TestIndexSaysWhatWasLeftOut checks the flags that clients compare torchvision's list of samples
// by, of a data set that is scanned, and of one whose manifest is read again.
func TestIndexSaysWhatWasLeftOut(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	const leavesOut, otherKinds = 1 << 4, 1 << 5
	for _, c := range []struct {
		want  uint32
		files []string
	}{
		{0, []string{"a/1.jpg", "b/2.jpg", "list.txt"}},
		{otherKinds, []string{"a/1.jpg", "b/2.jpg", "b/README"}},
		{leavesOut, []string{"a/1.jpg", "b/2.jpg", "b/.3.jpg"}},
		{leavesOut | otherKinds, []string{"a/1.jpg", "b/2.jpg", "b/.3.jpg", "b/2.xml"}},
	} {
		root, path := stagingtest.Tree(t, c.files...), filepath.Join(t.TempDir(), "index")
		for range 2 {
			m, err := Open(t.Context(), root, OpenOptions{})
			stagingtest.Must(t, err)
			stagingtest.Must(t, dataset.WriteIndex(path, m))
			index, err := os.ReadFile(path)
			stagingtest.Must(t, err)
			if flags := binary.LittleEndian.Uint32(index[16:]); flags != c.want {
				t.Errorf("%v: flags %b, want %b", c.files, flags, c.want)
			}
		}
	}
}
