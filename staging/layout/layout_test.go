package layout

import (
	"slices"
	"testing"
)

// checkLayout checks what holds for every layout: its components are not empty, and a byte
// is on one of the targets of its component, or on none.
func checkLayout(t interface{ Fatalf(string, ...any) }, l Layout, offset int64) {
	for _, c := range l.Components {
		if c.End <= c.Start || c.StripeBytes <= 0 || len(c.Targets) == 0 {
			t.Fatalf("component %+v", c)
		}
	}
	on := func(c Component) bool { return slices.Contains(c.Targets, l.TargetAt(offset)) }
	if l.TargetAt(offset) != NoTarget && !slices.ContainsFunc(l.Components, on) {
		t.Fatalf("byte %d is on target %d, which is not one of %v", offset, l.TargetAt(offset), l)
	}
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
		{dom, 0, NoTarget},       // on the MDT
		{dom, 256*k - 1, NoTarget},
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
