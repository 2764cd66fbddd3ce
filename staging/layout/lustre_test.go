package layout

import (
	"bytes"
	"encoding/binary"
	"math"
	"reflect"
	"strings"
	"testing"
)

const eof = math.MaxInt64

// lustreGolden is what the byte images of testdata mean.
var lustreGolden = map[string]Layout{
	"v1":       {Components: []Component{{0, eof, 1 << 20, []int{3, 10}}}},
	"v3":       {Components: []Component{{0, eof, 4 << 20, []int{258}}}},
	"released": {Offline: true},
	"hole":     {Components: []Component{{0, eof, 1 << 20, []int{1, NoTarget}}}},
	"foreign":  {},
	"dom":      {Components: []Component{{256 << 10, 64 << 20, 1 << 20, []int{5}}}},
	"sel":      {Components: []Component{{0, 128 << 20, 1 << 20, []int{7}}}},
	"mirrored": { // the first is stale
		Components: []Component{{0, eof, 1 << 20, []int{2}}, {0, eof, 1 << 20, []int{3}}},
	},
}

func TestParseLustreGolden(t *testing.T) {
	for name, want := range lustreGolden {
		t.Run(name, func(t *testing.T) {
			got, err := parseLustre(golden(t, name))
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
		})
	}
}

// What has not been written to has no place yet, not even on the MDT.
func TestParseLustreNotMade(t *testing.T) {
	value := bytes.Clone(golden(t, "dom"))
	value[compBytes+4] = 0 // flags of the first component: not LCME_FL_INIT
	l, err := parseLustre(value)
	if err != nil || len(l.Components) != 1 || l.TargetAt(0) != NoTarget || l.TargetAt(256<<10) != 5 {
		t.Errorf("%+v, %v", l, err)
	}
	value = bytes.Clone(golden(t, "dom"))
	value[compBytes+compEntryBytes+4] |= entryParity
	if l, err = parseLustre(value); err != nil || l.TargetAt(256<<10) != NoTarget {
		t.Errorf("parity is no data: %+v, %v", l, err)
	}
}

// A composite's size field is not needed for reading, but a golden image with a wrong one would be
// a wrong image.
func TestGoldenSizes(t *testing.T) {
	for _, name := range []string{"dom", "sel", "mirrored"} {
		value := golden(t, name)
		if size := binary.LittleEndian.Uint32(value[4:]); int(size) != len(value) {
			t.Errorf("%s: lcm_size is %d, the image has %d bytes", name, size, len(value))
		}
	}
}

// Parsing a truncated image returns an error or, if the layout was complete, that layout: it never
// panics, and never returns another layout.
func TestParseLustreCutOff(t *testing.T) {
	for name, want := range lustreGolden {
		value := golden(t, name)
		for n := range value {
			got, err := parseLustre(value[:n])
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s cut off at %d: %+v", name, n, got)
			}
		}
	}
}

func TestParseLustreErrors(t *testing.T) {
	change := func(name string, at int, to ...byte) []byte {
		value := bytes.Clone(golden(t, name))
		copy(value[at:], to)
		return value
	}
	for name, test := range map[string]struct {
		value []byte
		want  string
	}{
		"nothing":          {nil, "too early"},
		"other magic":      {change("v1", 0, 0xd0, 0x0b, 0xd2), "unknown magic 0x0bd20bd0"},
		"other byte order": {change("v1", 0, 0x0b, 0xd1, 0x0b, 0xd0), "unknown magic 0xd00bd10b"},
		"no stripe":        {change("v1", 24, 0, 0, 0, 0), "0 bytes"},
		"odd stripe":       {change("v1", 24, 1, 0, 0, 0), "1 bytes"},
		"many objects":     {change("v1", 28, 0xff, 0xff), "too early"},
		"many entries":     {change("dom", 14, 0xff, 0xff), "too early"},
		"blob behind end": {
			change("dom", 32+24, 0xff, 0xff, 0xff, 0xff),
			"component 0: the layout ends too early",
		},
		"blob is composite": {
			change("dom", 32+24, 0, 0, 0, 0, 0x20),
			"component 0: the layout has the unknown magic",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := parseLustre(test.value)
			if err == nil || !strings.Contains(err.Error(), test.want) || !reflect.DeepEqual(l, Layout{}) {
				t.Errorf("%+v, %v; want %q", l, err, test.want)
			}
		})
	}
}

func FuzzParseLustre(f *testing.F) {
	for name := range lustreGolden {
		f.Add(golden(f, name), int64(1<<20))
	}
	f.Fuzz(func(t *testing.T, value []byte, offset int64) {
		l, err := parseLustre(value)
		if err != nil {
			return
		}
		checkLayout(t, l, offset&eof)
	})
}
