package dataset

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

// CompareNames orders two names as Python orders the strings that os.listdir returns: by code
// point, where each byte that is not part of valid UTF-8 counts as the code point U+DC00 + byte.
// For valid UTF-8 that is byte order.
//
// Source: PEP 383 (surrogateescape).
func CompareNames(a, b string) int {
	if utf8.ValidString(a) && utf8.ValidString(b) {
		return strings.Compare(a, b)
	}
	for a != "" && b != "" {
		x, nx := codePoint(a)
		y, ny := codePoint(b)
		if x != y {
			return cmp.Compare(x, y)
		}
		a, b = a[nx:], b[ny:]
	}
	return cmp.Compare(len(a), len(b))
}

func codePoint(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return 0xDC00 + rune(s[0]), 1
	}
	return r, n
}

// CompareFolders orders folders as ImageFolder visits them: by class, then by whole path. The two
// differ: "a/x" comes before "a-b", although '-' sorts before '/'.
func CompareFolders(a, b string) int {
	return cmp.Or(CompareNames(ClassOf(a), ClassOf(b)), CompareNames(a, b))
}
