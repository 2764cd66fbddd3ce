package layout

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkLayout checks what holds for every layout and range: pieces cover the range, each on the
// target of all of its bytes, none longer than a stripe; and BytesOn is their sum.
func checkLayout(t interface{ Fatalf(string, ...any) }, l Layout, offset, length int64) {
	if offset > math.MaxInt64-length {
		offset = math.MaxInt64 - length
	}
	at := offset
	want, got := map[int]int64{}, map[int]int64{}
	for p := range l.Pieces(offset, length) {
		if p.Offset != at || p.Length <= 0 {
			t.Fatalf("piece %+v, want one at %d", p, at)
		}
		at += p.Length
		for _, b := range []int64{p.Offset, p.Offset + p.Length/2, at - 1} {
			if l.TargetAt(b) != p.Target {
				t.Fatalf("byte %d of piece %+v is on %d", b, p, l.TargetAt(b))
			}
		}
		if stripe := l.StripeBytes(p.Offset); stripe > 0 && p.Offset/stripe != (at-1)/stripe {
			t.Fatalf("piece %+v crosses a stripe of %d", p, stripe)
		}
		want[p.Target] += p.Length
	}
	if at != offset+length {
		t.Fatalf("pieces of [%d, +%d) end at %d", offset, length, at)
	}
	l.BytesOn(offset, length, func(target int, n int64) { got[target] += n })
	if !maps.Equal(got, want) {
		t.Fatalf("BytesOn gives %v, the pieces %v", got, want)
	}
}

func drawLayout(t *rapid.T) Layout {
	l := Layout{FileSystem: Lustre, Kind: KindComposite}
	var at int64
	for range rapid.IntRange(0, 4).Draw(t, "components") {
		start := at + int64(rapid.IntRange(0, 3).Draw(t, "gap"))*minStripeBytes
		end := start + int64(rapid.IntRange(1, 40).Draw(t, "stripes"))*minStripeBytes
		targets := rapid.SliceOfN(rapid.IntRange(0, 9), 1, 5).Draw(t, "targets")
		l.Components = append(l.Components, Component{
			start, end, minStripeBytes * int64(rapid.IntRange(1, 3).Draw(t, "size")), targets,
		})
		at = end
	}
	return l
}

func TestPiecesCoverAnyRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLayout(t)
		offset := rapid.Int64Range(0, 200*minStripeBytes).Draw(t, "offset")
		checkLayout(t, l, offset, rapid.Int64Range(0, 100*minStripeBytes).Draw(t, "length"))
	})
}

func TestTargetAt(t *testing.T) {
	const k, m = 1 << 10, 1 << 20
	striped := lustreGolden["v1"]
	dom := lustreGolden["dom"]
	for _, test := range []struct {
		l      Layout
		offset int64
		want   int
	}{
		{striped, 0, 3},
		{striped, m - 1, 3},
		{striped, m, 10},
		{striped, 2 * m, 3},
		{striped, eof - 1, 10},
		{striped, eof, NoTarget}, // beyond every file
		{dom, 0, MDT},
		{dom, 256*k - 1, MDT},
		{dom, 256 * k, 5},
		{dom, 64*m - 1, 5},
		{dom, 64 * m, NoTarget}, // not written to yet
		{Layout{}, 0, NoTarget},
		// Stripes count from the start of the file: byte 3 MiB is in stripe 3, though it is the
		// component's first.
		{Layout{Components: []Component{{3 * m, eof, m, []int{0, 1}}}}, 3 * m, 1},
	} {
		if got := test.l.TargetAt(test.offset); got != test.want {
			t.Errorf("TargetAt(%d) = %d, want %d in %+v", test.offset, got, test.want, test.l)
		}
	}
}

func TestPieces(t *testing.T) {
	const k, m = 1 << 10, 1 << 20
	for name, test := range map[string]struct {
		l              Layout
		offset, length int64
		want           []Piece
	}{
		"none":          {Layout{}, 5, 10, []Piece{{5, 10, NoTarget}}},
		"empty":         {lustreGolden["v1"], 5, 0, nil},
		"in one stripe": {lustreGolden["v1"], m + 1, 10, []Piece{{m + 1, 10, 10}}},
		"two and a half": {
			lustreGolden["v1"], m / 2, 2*m + 5,
			[]Piece{{m / 2, m / 2, 3}, {m, m, 10}, {2 * m, m/2 + 5, 3}},
		},
		"dom": {
			lustreGolden["dom"], 0, 2 * m,
			[]Piece{{0, 256 * k, MDT}, {256 * k, 768 * k, 5}, {m, m, 5}},
		},
		"behind all": {
			lustreGolden["dom"], 64*m - 1, 10,
			[]Piece{{64*m - 1, 1, 5}, {64 * m, 9, NoTarget}},
		},
		"last byte": {lustreGolden["v1"], eof - 1, 1, []Piece{{eof - 1, 1, 10}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := slices.Collect(test.l.Pieces(test.offset, test.length)); !reflect.DeepEqual(
				got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			for range test.l.Pieces(test.offset, test.length) {
				break // must not continue
			}
		})
	}
}

// BytesOn of an exabyte is a sum over targets, not a walk over stripes.
func TestBytesOnOfHugeFile(t *testing.T) {
	got := map[int]int64{}
	lustreGolden["v1"].BytesOn(0, 1<<60, func(target int, n int64) { got[target] += n })
	if want := map[int]int64{3: 1 << 59, 10: 1 << 59}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestTargets(t *testing.T) {
	l := Layout{Components: []Component{
		{0, 10, 10, []int{MDT}},
		{10, 20, 10, []int{4, 2}},
		{20, 30, 10, []int{2, 9}},
	}}
	if got := l.Targets(); !slices.Equal(got, []int{MDT, 4, 2, 9}) {
		t.Error(got)
	}
}

func TestRangePanics(t *testing.T) {
	for _, r := range [][2]int64{{-1, 1}, {0, -1}, {math.MaxInt64, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Pieces(%d, %d) does not panic", r[0], r[1])
				}
			}()
			Layout{}.Pieces(r[0], r[1])
		}()
	}
}
