package dataset

import (
	"path/filepath"
	"reflect"
	"testing"

	"rankpool/scheduler/draw"
)

// piecesOf returns a manifest of 6 pieces in two files, one of which is a whole file.
func piecesOf(t *testing.T, p *Pieces) *Manifest {
	t.Helper()
	b := NewBuilder("/data", 6)
	b.Pieces(p)
	for i := range int64(5) {
		err := b.Add(Sample{
			Path: "year/a.h5", Format: FormatPart, Offset: 100 + 10*i, Size: 10, ModTime: 7,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Add(Sample{Path: "year/c/0.0", Size: 50, ModTime: 8}); err != nil {
		t.Fatal(err)
	}
	m, err := b.Manifest([]string{""})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func windowsOf(p *Pieces) (all [][]Window) {
	for s := range draw.SampleID(p.Samples) {
		windows := []Window{}
		for first, n := range p.Windows(s) {
			windows = append(windows, Window{uint32(first), uint32(n)})
		}
		all = append(all, windows)
	}
	return all
}

// TestPiecesSurvive writes manifests of pieces as an index and as a manifest file, and reads them.
func TestPiecesSurvive(t *testing.T) {
	for name, samples := range map[string][][]Window{
		"windows": {{{0, 3}}, {{1, 3}}, {{2, 4}}},
		"lists":   {{{0, 1}, {5, 1}}, {}, {{2, 2}, {2, 1}}, {{4, 1}}},
	} {
		p := &Pieces{Block: 4, Note: `{"rows":3}`, Heads: []Head{{
			Path: "year/a.h5", Size: 400, ModTime: 7, Ranges: []Range{{0, 96}, {200, 8}},
			Packed: []byte("packed"),
		}}}
		for _, windows := range samples {
			p.Add(windows...)
		}
		m := piecesOf(t, p)
		parquet, index := filepath.Join(t.TempDir(), "m.parquet"), filepath.Join(t.TempDir(), "index")
		if err := WriteParquet(parquet, m); err != nil {
			t.Fatal(err)
		}
		read, err := ReadParquet(parquet)
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteIndex(index, read); err != nil {
			t.Fatal(err)
		}
		mapped, err := OpenIndex(index)
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []*Manifest{read, mapped} {
			if w := windowsOf(got.Pieces()); !reflect.DeepEqual(w, samples) {
				t.Errorf("%s: %v, want %v", name, w, samples)
			}
			q := got.Pieces()
			if q.Block != 4 || q.Note != p.Note || !reflect.DeepEqual(q.Heads, p.Heads) {
				t.Errorf("%s: %+v", name, q)
			}
			if got.Identity() != m.Identity() || got.Samples() != len(samples) || got.Len() != 6 {
				t.Errorf("%s: another identity or length", name)
			}
			for id := range draw.SampleID(6) {
				if !reflect.DeepEqual(got.Sample(id), m.Sample(id)) {
					t.Errorf("%s: piece %d is %+v", name, id, got.Sample(id))
				}
			}
		}
	}
}

// TestIdentityOfPieces: it covers what samples are made of, and no modification time.
func TestIdentityOfPieces(t *testing.T) {
	identity := func(change func(*Pieces)) Digest {
		p := &Pieces{Block: 1, Note: "{}", Heads: []Head{{Path: "year/a.h5", ModTime: 7}}}
		p.Add(Window{0, 3})
		p.Add(Window{1, 3})
		change(p)
		return piecesOf(t, p).Identity().Digest
	}
	same := identity(func(*Pieces) {})
	if identity(func(p *Pieces) { p.Heads[0].ModTime = 9 }) != same {
		t.Error("a copy has another identity")
	}
	for name, change := range map[string]func(*Pieces){
		"a window":  func(p *Pieces) { p.count.wide[0] = 2 },
		"a sample":  func(p *Pieces) { p.Add(Window{0, 1}) },
		"the note":  func(p *Pieces) { p.Note = "{ }" },
		"the block": func(p *Pieces) { p.Block = 2 },
	} {
		if identity(change) == same {
			t.Errorf("%s does not change the identity", name)
		}
	}
}

// TestPiecesThatDoNotExist are refused.
func TestPiecesThatDoNotExist(t *testing.T) {
	for _, w := range []Window{{6, 1}, {5, 2}, {0, 7}, {0, 0}} {
		b := NewBuilder("/data", 0)
		p := &Pieces{Block: 1}
		b.Pieces(p)
		for range 6 {
			if err := b.Add(Sample{Path: "a", Size: 50, ModTime: 8}); err != nil {
				t.Fatal(err)
			}
		}
		p.Add(w)
		if _, err := b.Manifest([]string{""}); err == nil {
			t.Errorf("window %v is accepted", w)
		}
	}
}
