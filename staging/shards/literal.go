package shards

import (
	"strconv"
	"strings"
)

// A pyTuple is a tuple of Python's. A list is a []any, and a dictionary a map[string]any.
type pyTuple []any

// maxDepth is how deep literals may be within others.
const maxDepth = 32

// literals reads literals of Python 3 and 2: dictionaries whose keys are texts, lists, tuples,
// texts, whole numbers, True and False. All texts keep their escapes. After an error, ok is false.
type literals struct {
	rest  string
	depth int
	ok    bool
}

// parseLiteral returns the literal at the beginning of a text.
func parseLiteral(text string) (value any, ok bool) {
	l := &literals{rest: text, ok: true}
	value = l.value()
	return value, l.ok
}

// take skips white space, and a prefix if it is there.
func (l *literals) take(prefix string) bool {
	l.rest = strings.TrimLeft(l.rest, " \t\r\n")
	rest, found := strings.CutPrefix(l.rest, prefix)
	l.rest = rest
	return found
}

func (l *literals) value() any {
	l.depth++
	defer func() { l.depth-- }()
	l.ok = l.ok && l.depth <= maxDepth
	switch {
	case !l.ok:
		return nil
	case l.take("{"):
		return l.dictionary()
	case l.take("["):
		return l.items("]")
	case l.take("("):
		return pyTuple(l.items(")"))
	case l.take("'"), l.take("u'"):
		return l.text("'")
	case l.take(`"`), l.take(`u"`):
		return l.text(`"`)
	case l.take("True"):
		return true
	case l.take("False"):
		return false
	}
	return l.number()
}

func (l *literals) number() int64 {
	end := len(l.rest) - len(strings.TrimLeft(l.rest, "-0123456789"))
	n, err := strconv.ParseInt(l.rest[:end], 10, 64)
	l.ok = l.ok && err == nil
	l.rest = strings.TrimPrefix(l.rest[end:], "L")
	return n
}

// text returns what comes before a quote.
func (l *literals) text(quote string) string {
	for i := 0; i < len(l.rest); i++ {
		switch l.rest[i] {
		case '\\':
			i++
		case quote[0]:
			found := l.rest[:i]
			l.rest = l.rest[i+1:]
			return found
		}
	}
	l.ok = false
	return ""
}

// items returns the items of a list or tuple.
func (l *literals) items(end string) []any {
	var found []any
	for l.ok && !l.take(end) {
		found = append(found, l.value())
		if !l.take(",") && l.ok {
			l.ok = l.take(end)
			break
		}
	}
	return found
}

func (l *literals) dictionary() map[string]any {
	found := map[string]any{}
	for l.ok && !l.take("}") {
		key, isText := l.value().(string)
		l.ok = l.ok && isText && l.take(":")
		found[key] = l.value()
		if !l.take(",") && l.ok {
			l.ok = l.take("}")
			break
		}
	}
	return found
}
