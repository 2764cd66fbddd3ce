package dataset

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestEncodeNames(t *testing.T) {
	for _, c := range []struct {
		names []string
		text  string
	}{
		{nil, `[]`},
		{[]string{"", "a/b", "ä"}, `["","a/b","ä"]`},
		{[]string{"a\nb\"\\", "\xff\xc3x"}, `["a\nb\"\\","\udcff\udcc3x"]`},
	} {
		if got := encodeNames(c.names); got != c.text {
			t.Errorf("%q: got %s, want %s", c.names, got, c.text)
		}
	}
}

func TestDecodeNames(t *testing.T) {
	for text, want := range map[string]string{
		`[ "\\udcff" ]`:        `\udcff`,
		`["\ud83d\ude00"]`:     "\U0001F600",
		`["\ud83d\udc80"]`:     "\U0001F480", // the second half of a pair does not stand for a byte
		`["\ud83dab\udc80"]`:   "\ufffdab\x80",
		`["\u00e4\udcFFx"]`:    "ä\xffx",
		`["\\\udc80\u005c\n"]`: "\\\x80\\\n",
	} {
		if got, err := decodeNames(text); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{``, `{}`, `[1]`, `[null]`, `["\x"]`, `["a"`} {
		if got, err := decodeNames(text); err == nil {
			t.Errorf("%s: got %q, want an error", text, got)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var names []string
		for _, name := range rapid.SliceOf(rapid.SliceOf(rapid.Byte())).Draw(t, "names") {
			names = append(names, string(name))
		}
		got, err := decodeNames(encodeNames(names))
		if err != nil || !slices.Equal(got, names) {
			t.Fatalf("%q became %q, %v", names, got, err)
		}
	})
}

func FuzzDecodeNames(f *testing.F) {
	f.Add(`["a","\udcff","\ud83d\ude00"]`)
	f.Fuzz(func(t *testing.T, text string) {
		names, err := decodeNames(text)
		if err != nil {
			return
		}
		if again, err := decodeNames(encodeNames(names)); err != nil ||
			!slices.Equal(names, again) {
			t.Errorf("%q became %q, %v", names, again, err)
		}
	})
}
