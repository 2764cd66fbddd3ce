package shards

import (
	"archive/tar"
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An entry of a tar file; kind 0 is a regular file.
type entry struct {
	name, content string
	kind          byte
}

func writeTar(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		kind := e.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		must(t, w.WriteHeader(&tar.Header{
			Name: e.name, Size: int64(len(e.content)), Mode: 0o644,
			Typeflag: kind,
		}))
		_, err := w.Write([]byte(e.content))
		must(t, err)
	}
	must(t, w.Close())
	return out.Bytes()
}

func TestTarLabels(t *testing.T) {
	for _, c := range []struct {
		entries []entry
		want    []uint32
		without string
	}{
		{
			[]entry{{name: "a.jpg"}, {name: "a.cls", content: "3"}, {name: "b.cls", content: " 12\n"}},
			[]uint32{3, 12},
			"",
		},
		{[]entry{{name: "a.jpg"}, {name: "b.jpg"}}, nil, ""},
		{[]entry{{name: "a.cls", content: "cat"}, {name: "b.cls", content: "-1"}}, nil, ""},
		{[]entry{{name: "a.cls", content: "1048576"}}, nil, ""},
		{[]entry{{name: "a.cls", content: "1048575"}}, []uint32{1048575}, ""},
		{[]entry{{name: "a.cls", content: strings.Repeat(" ", 16) + "1"}}, nil, ""},
		{
			[]entry{{name: "a.cls", content: "1"}, {name: "x/b.jpg"}},
			nil,
			"x/b",
		},
		{[]entry{{name: "a.cls", content: "1"}, {name: "b.cls", content: "cat"}}, nil, "b"},
		{nil, nil, ""},
	} {
		contents, err := parse(Tar, writeTar(t, c.entries...))
		must(t, err)
		if !slices.Equal(contents.Labels, c.want) || (contents.Labels == nil) != (c.want == nil) ||
			contents.Unlabelled != c.without {
			t.Errorf("%v: labels %v, %q without", c.entries, contents.Labels, contents.Unlabelled)
		}
	}
}

func TestTarSamples(t *testing.T) {
	data := writeTar(t, entry{name: "b.JPG", content: "b"}, entry{name: "x.y/", kind: tar.TypeDir},
		entry{name: "__meta.json__"},
		entry{name: "README"}, entry{name: ".hidden.jpg"}, entry{name: "x.y/.h.jpg"},
		entry{name: "y/.h.jpg", content: "h"},
		entry{name: "x.y/a.seg.PNG", content: "aa"}, entry{name: "__m__/a.jpg"},
		entry{name: "x.y/__s__.jpg"},
		entry{name: "b.txt", content: strings.Repeat("b", 600)})
	contents, err := parse(Tar, data)
	must(t, err)
	var got []string
	for _, members := range contents.places() {
		text := ""
		for _, m := range members {
			text += fmt.Sprintf("%s=%d ", m.Kind, m.Size)
		}
		got = append(got, text)
	}
	want := []string{"jpg=1 ", "h.jpg=1 ", "seg.png=2 ", "jpg=0 ", "txt=600 "}
	if !slices.Equal(got, want) {
		t.Errorf("the samples are %q, want %q", got, want)
	}
}

func TestTarErrors(t *testing.T) {
	whole := writeTar(t, entry{name: "a.jpg", content: strings.Repeat("a", 700)},
		entry{name: "b.jpg", content: "b"})
	// A header and two blocks of data, a header and one, and the end mark of two blocks, of which one
	// would do.
	const b, end = 1536, 2560
	for n := range len(whole) {
		_, err := parse(Tar, whole[:n])
		switch {
		case n < 512:
			wantError(t, err, "is truncated", "header or end mark at byte 0")
		case n < 512+700:
			wantError(t, err, fmt.Sprintf(
				`is truncated: its member "a.jpg" at byte 0 needs 1212 bytes of the file, which has %d`, n))
		case n < b+512:
			wantError(t, err, "is truncated", "header or end mark at byte 1536")
		case n < b+513:
			wantError(t, err, `its member "b.jpg" at byte 1536`)
		case n < end+512, n > end+512:
			wantError(t, err, "is truncated", "header or end mark at byte 2560")
		case err != nil:
			t.Fatalf("%d bytes: %v", n, err)
		}
	}
	_, err := parse(Tar, []byte(strings.Repeat("no tar ", 1000)))
	wantError(t, err, "is damaged, or is not a tar file: the header at byte 0 is invalid")
	_, err = parse(Tar, writeTar(t, entry{name: "a.jpg"}, entry{name: "a.txt"}, entry{name: "a.JPG"}))
	wantError(t, err, `has two members "jpg" of the sample "a"`)
	long := writeTar(t, entry{name: "a", content: strings.Repeat("a", 2<<20)})
	asPAX(long)
	_, err = parse(Tar, long)
	wantError(t, err, "has a header of more than 1 MiB at byte 0")
	_, err = parse(Tar, slices.Concat(sparseHeader(), make([]byte, 1024)))
	wantError(t, err, `has the sparse member "s.bin", which cannot be read in place`)
}

// A comment of 2 MiB, before and after the path, and a size, which such a header must not have.
func TestTarLargeHeaders(t *testing.T) {
	comment := paxRecord("comment", strings.Repeat("x", 2<<20))
	path := paxRecord("path", "a b/"+strings.Repeat("long", 100)+".jpg")
	member := writeTar(t, entry{name: "short.jpg", content: "a"}, entry{name: "b.jpg", content: "b"})
	for _, records := range []string{comment + path, path + comment} {
		large := writeTar(t, entry{name: "pax", content: records})
		large = large[:len(large)-1024]
		asPAX(large)
		found, err := parse(Tar, slices.Concat(large, member))
		if err != nil || len(found.Samples) != 2 {
			t.Fatalf("%d samples, %v", len(found.Samples), err)
		}
		if at := int64(len(large)) + 512; found.Samples[0] != (Range{at, 1}) {
			t.Errorf("the first sample is at %v, want byte %d", found.Samples[0], at)
		}
		large = writeTar(t, entry{name: "pax", content: comment + paxRecord("size", "1")})
		asPAX(large)
		_, err = parse(Tar, large)
		wantError(t, err, "has a header of more than 1 MiB at byte 0")
	}
	alike := writeTar(t, entry{name: "pax", content: comment + paxRecord("path", "b.png")})
	alike = alike[:len(alike)-1024]
	asPAX(alike)
	found, err := parse(Tar, slices.Concat(alike, member))
	if err != nil || len(found.Samples) != 1 || len(found.Members) != 2 {
		t.Errorf("%d samples of %d members, %v; want one sample b", len(found.Samples),
			len(found.Members), err)
	}
}

func paxRecord(key, value string) string {
	rest := fmt.Sprintf(" %s=%s\n", key, value)
	n := len(rest) + 1
	for len(strconv.Itoa(n))+len(rest) != n {
		n++
	}
	return strconv.Itoa(n) + rest
}

// asPAX makes the first member's header one of a pax header.
func asPAX(archive []byte) {
	sum, _ := strconv.ParseInt(strings.Trim(string(archive[148:156]), " \x00"), 8, 64)
	archive[156] = tar.TypeXHeader
	copy(archive[148:], fmt.Sprintf("%06o\x00 ", sum+tar.TypeXHeader-tar.TypeReg))
}

// sparseHeader is the header of an empty sparse file in GNU tar's old format.
func sparseHeader() []byte {
	data := writeTarHeader("s.bin", tar.TypeGNUSparse)
	return data
}

// writeTarHeader makes one GNU header by hand, since archive/tar writes no sparse ones.
func writeTarHeader(name string, kind byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x000000000\x0000000000000\x0000000000000\x00")
	h[156] = kind
	copy(h[257:], "ustar  \x00")
	copy(h[483:], "00000000000\x00")
	copy(h[148:], "        ")
	sum := 0
	for _, c := range h {
		sum += int(c)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// TestTarRandom writes members of random samples in any order, and finds each where its bytes are.
func TestTarRandom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`([a-c.]{1,3}/)?[ab]{1,2}\.[A-C.]{0,3}`), 0,
			20,
			strings.ToLower).Draw(rt, "names")
		var entries []entry
		for i, name := range names {
			size := rapid.IntRange(0, 1500).Draw(rt, "size")
			entries = append(entries, entry{name: name, content: strings.Repeat(string(rune('a'+i)), size)})
		}
		data := writeTar(t, entries...)
		contents, err := parse(Tar, data)
		if err != nil {
			rt.Fatal(err)
		}
		checkContents(t, contents, int64(len(data)))
		found := map[string]string{} // kinds by content
		total := 0
		for _, members := range contents.places() {
			for _, m := range members {
				found[string(data[m.Offset:m.Offset+m.Size])] = m.Kind
				total++
			}
		}
		want := 0
		for _, e := range entries {
			_, kind, ok := splitName(e.name)
			if !ok {
				continue
			}
			want++
			if got, is := found[e.content]; !is || e.content != "" && got != kind {
				rt.Fatalf("member %q: kind %q, %v, want %q", e.name, got, is, kind)
			}
		}
		if total != want {
			rt.Fatalf("%d members, want %d", total, want)
		}
	})
}

func FuzzTar(f *testing.F) {
	f.Add(writeTar(f, entry{name: "a.jpg", content: "aa"}, entry{name: "a.cls", content: "1"},
		entry{name: strings.Repeat("l", 150) + ".x"}))
	f.Add(sparseHeader())
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := parse(Tar, data); err == nil {
			checkContents(t, c, int64(len(data)))
		} else {
			wantError(t, err, "")
		}
	})
}
