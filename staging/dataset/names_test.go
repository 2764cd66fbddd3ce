package dataset

import (
	"cmp"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// TestComparePython checks the orders that Python 3 printed for sorted(os.fsdecode(b) for b in
// names).
func TestComparePython(t *testing.T) {
	for _, sorted := range [][]string{
		{"", "A", "B", "_", "a", "a-b", "a.b", "ab", "b"},
		{"10", "2", "9"},
		// an invalid byte counts as U+DC80…U+DCFF
		{"z", "ä", "\u20ac", "\ud7ff", "\x80", "\xff", "\ue000", "\uffff", "\U00010000"},
		{"a\xe2\x82", "a\xe2\x82a", "a\xff", "b"},
		{"\xed\xa0\x80", "\xf0\x9f"}, // a surrogate in UTF-8 is three invalid bytes
	} {
		shuffled := slices.Clone(sorted)
		slices.Reverse(shuffled)
		slices.SortFunc(shuffled, CompareNames)
		if !slices.Equal(shuffled, sorted) {
			t.Errorf("got %q, want %q", shuffled, sorted)
		}
	}
}

// TestCompareCodePoints checks CompareNames against a comparison of whole decoded names.
func TestCompareCodePoints(t *testing.T) {
	decode := func(s string) (points []rune) {
		for s != "" {
			r, n := utf8.DecodeRuneInString(s)
			if r == utf8.RuneError && n == 1 {
				r = 0xDC00 + rune(s[0])
			}
			points, s = append(points, r), s[n:]
		}
		return points
	}
	letters := rapid.SliceOfN(rapid.SampledFrom(
		[]string{"a", "b", "ä", "\ufffd", "\xc3", "\xa4", "\xff", "\U0001F600"}), 0, 4)
	rapid.Check(t, func(t *rapid.T) {
		join := func(label string) (s string) {
			for _, letter := range letters.Draw(t, label) {
				s += letter
			}
			return s
		}
		a, b := join("a"), join("b")
		if got, want := CompareNames(a, b), slices.Compare(decode(a), decode(b)); got != want {
			t.Fatalf("%q and %q: got %d, want %d", a, b, got, want)
		}
		if CompareNames(a, b) != -CompareNames(b, a) ||
			(CompareNames(a, b) == 0) != (cmp.Compare(a, b) == 0) {
			t.Fatalf("%q and %q: no order", a, b)
		}
	})
}

func TestTimeText(t *testing.T) {
	for _, want := range []string{
		"1969-12-31T23:59:59Z", "2024-02-29T12:30:00.123456789Z", "2300-01-01T00:00:00Z",
		"2446-05-10T22:38:55Z",
	} {
		at, err := time.Parse(time.RFC3339Nano, want)
		if err != nil {
			t.Fatal(err)
		}
		nano := at.Unix()*1e9 + int64(at.Nanosecond()) // overflows after 2262, as of a file
		if got := TimeText(nano); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
