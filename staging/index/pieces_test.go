package index

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/staging/dataset"
)

// writeData writes a file of 100 numbered bytes, and returns its folder, and its line in a table.
func writeData(t *testing.T) (dir, line string) {
	t.Helper()
	dir = t.TempDir()
	content := make([]byte, 100)
	for i := range content {
		content[i] = byte(i)
	}
	path := filepath.Join(dir, "a.bin")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return dir, fmt.Sprintf("F\ta.bin\t100\t%d", info.ModTime().UnixNano())
}

func tableOf(dir string, lines ...string) io.Reader {
	title := []string{piecesTitle, fmt.Sprintf("N\t{\"root\":%q,\"rows\":2}", dir)}
	return strings.NewReader(strings.Join(append(title, lines...), "\n") + "\n")
}

func TestReadPieces(t *testing.T) {
	dir, file := writeData(t)
	m, err := ReadPieces(tableOf(dir, file, "H\t0\t10", "H\t90\t5", "P\t10\t20\t3", "P\t70\t8",
		"W\t0\t2\t1\t2", "S\t3\t1\t0\t1", "S"))
	if err != nil {
		t.Fatal(err)
	}
	if m.Len() != 4 || m.Samples() != 4 || m.Block() != 2*windowsInBlock {
		t.Errorf("%d pieces, %d samples, blocks of %d", m.Len(), m.Samples(), m.Block())
	}
	if m.Offset(2) != 50 || m.Size(2) != 20 || m.Size(3) != 8 || m.RelPath(3) != "a.bin" ||
		m.Format(0) != dataset.FormatPart {
		t.Errorf("piece 2 is %+v, piece 3 %+v", m.Sample(2), m.Sample(3))
	}
	var windows []string
	for s := range draw.SampleID(4) {
		text := ""
		for first, n := range m.Pieces().Windows(s) {
			text += fmt.Sprintf("%d+%d ", first, n)
		}
		windows = append(windows, text)
	}
	if want := []string{"0+2 ", "1+2 ", "3+1 0+1 ", ""}; !slices.Equal(windows, want) {
		t.Errorf("samples %q, want %q", windows, want)
	}
	head := m.Pieces().Heads[0]
	z, err := zlib.NewReader(bytes.NewReader(head.Packed))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(z)
	if want := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 90, 91, 92, 93, 94}; err != nil ||
		!bytes.Equal(content, want) {
		t.Errorf("the head has %v (%v), want %v", content, err, want)
	}
}

func TestReadPiecesRefuses(t *testing.T) {
	dir, file := writeData(t)
	for name, tt := range map[string]struct{ table, want string }{
		"a title":      {"no table", "line 1: it does not begin with"},
		"no title":     {"", "the list of pieces is empty"},
		"a note":       {piecesTitle + "\nF\ta\t1\t1", "line 2: there must be a note"},
		"a line":       {"X\t1", `line 3: "X\t1" is not a line`},
		"a number":     {file + "\nP\t-1\t2", `line 4: "-1" is not a number`},
		"beyond":       {file + "\nP\t90\t11", "line 4: a.bin has 100 bytes, and not 1 pieces of 11"},
		"many":         {file + "\nP\t0\t1\t101", "line 4: a.bin has 100 bytes, and not 101 pieces"},
		"no file":      {"P\t0\t1", "is not a line"},
		"outside":      {"F\t../a\t1\t1", "is not a folder below the root"},
		"other size":   {"F\ta.bin\t99\t1\nP\t0\t1\nS\t0\t1", "was changed after its pieces were listed"},
		"no such file": {"F\tb.bin\t99\t1\nP\t0\t1\nS\t0\t1", "no such file"},
		"head":         {file + "\nH\t99\t2\nP\t0\t1\nS\t0\t1", "ends before byte 101"},
		"window":       {file + "\nP\t0\t1\nS\t0\t2", "a window of 2 pieces from piece 0 on"},
		"no samples":   {file + "\nP\t0\t1", "there are 0 samples"},
	} {
		table := io.Reader(strings.NewReader(tt.table))
		if !strings.Contains(name, "title") && !strings.Contains(name, "note") {
			table = tableOf(dir, tt.table)
		}
		if _, err := ReadPieces(table); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestOpenNamesTheRemedy: a file whose samples are pieces, a Zarr store, and a folder with nothing
// but .npy files need a manifest.
func TestOpenNamesTheRemedy(t *testing.T) {
	dir := t.TempDir()
	for _, name := range strings.Fields("a.h5 zarr/.zgroup rows/a.npy rows/.b mixed/a.npy " +
		"mixed/b.txt classes/a/a.npy") {
		put(t, dir, name, []byte("{}"))
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, name := range []string{"rows", "mixed", "classes"} {
		whole := name == "rows" // with --format files
		_, err := Open(t.Context(), filepath.Join(dir, name),
			OpenOptions{ScanOptions: ScanOptions{WholeFiles: whole}})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a.h5", "zarr", "rows", "rows/a.npy"} {
		path := filepath.Join(dir, name)
		_, err := Open(t.Context(), path, OpenOptions{})
		if err == nil || !strings.Contains(err.Error(), "rankpool index "+path+" --rows") {
			t.Errorf("%s: %v", path, err)
		}
	}
}
