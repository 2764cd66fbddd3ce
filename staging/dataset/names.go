package dataset

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// encodeNames returns names as a JSON array of strings. A byte that is not part of valid UTF-8
// becomes \udcXX, as in Python, so that [os.fsencode(s) for s in json.loads(text)] restores the
// file system's bytes.
//
// Source: PEP 383 (surrogateescape).
func encodeNames(names []string) string {
	var out bytes.Buffer
	for i, name := range names {
		if i > 0 {
			out.WriteByte(',')
		}
		out.WriteByte('"')
		for name != "" {
			n := validPrefix(name)
			text, _ := json.Marshal(name[:n]) // marshalling a string cannot fail
			out.Write(text[1 : len(text)-1])
			for name = name[n:]; name != "" && validPrefix(name) == 0; name = name[1:] {
				fmt.Fprintf(&out, `\udc%02x`, name[0])
			}
		}
		out.WriteByte('"')
	}
	return "[" + out.String() + "]"
}

// validPrefix returns the length of the longest prefix of s that is valid UTF-8.
func validPrefix(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(s)
}

// decodeNames is the inverse of encodeNames, for any JSON array of strings.
func decodeNames(text string) ([]string, error) {
	var raw []json.RawMessage
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, err
	}
	names := make([]string, len(raw))
	for i, quoted := range raw {
		if quoted[0] != '"' {
			return nil, fmt.Errorf("%s is not a string", quoted)
		}
		name, err := decodeName(quoted[1 : len(quoted)-1])
		if err != nil {
			return nil, err
		}
		names[i] = name
	}
	return names, nil
}

// decodeName decodes the inside of a JSON string in which \udc80 to \udcff stand for single bytes,
// which encoding/json would lose.
func decodeName(quoted []byte) (string, error) {
	var name []byte
	start := 0
	flush := func(end int) error {
		var piece string
		err := json.Unmarshal([]byte(`"`+string(quoted[start:end])+`"`), &piece)
		name = append(name, piece...)
		return err
	}
	for i := 0; i < len(quoted); {
		switch unit := escapedUnit(quoted[i:]); {
		case quoted[i] != '\\':
			i++
		case unit >= 0xD800 && unit < 0xDC00 && escapedUnit(quoted[i+6:]) >= 0xDC00: // a pair, not a byte
			i += 12
		case unit >= 0xDC80 && unit <= 0xDCFF:
			if err := flush(i); err != nil {
				return "", err
			}
			name = append(name, byte(unit-0xDC00))
			i += 6
			start = i
		case unit >= 0:
			i += 6
		default:
			i += 2
		}
	}
	err := flush(len(quoted))
	return string(name), err
}

// escapedUnit returns the UTF-16 unit of the \uXXXX that quoted starts with, -1 if there is none.
func escapedUnit(quoted []byte) int {
	if len(quoted) < 6 || quoted[0] != '\\' || quoted[1] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(quoted[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return int(unit)
}

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
