package batchscript

import (
	"slices"
	"strings"
)

// A Command is one simple command of a script: words without their quotes, substitutions ($x, $(…)) as they are written.
type Command struct {
	Line       int      // where it begins
	Env        []string // the assignments before its words, or all there is
	Words      []string // the command and its arguments; empty for bare assignments
	Background bool     // it, or the list that it is part of, ends in &
	Guarded    bool     // && or || stands before or behind it, so its failure is looked at
	depth      int      // how many if, for, while, case, ( and { are open
	function   bool     // it is part of a function
}

// asksStatus reports whether a command looks at how the one before it ended.
func (c Command) asksStatus() bool {
	return slices.ContainsFunc(slices.Concat(c.Env, c.Words), func(word string) bool {
		return strings.Contains(word, "$?") || strings.Contains(word, "${?}")
	})
}

// readCommands splits bash into simple commands. It knows quotes, continued lines, comments, redirections,
// here-documents, and the words that begin and end compound commands. It runs once over the text.
func readCommands(text string) []Command {
	r := &reader{text: text, line: 1}
	for r.at < len(r.text) {
		r.step()
	}
	r.endCommand()
	return slices.DeleteFunc(r.commands, func(c Command) bool { return len(c.Words) == 0 && len(c.Env) == 0 })
}

// reader is the state of readCommands.
type reader struct {
	text     string
	at, line int
	commands []Command
	list     int // where in commands the list began that a & would end
	now      Command
	word     strings.Builder
	inWord   bool
	drop     bool     // the next word is where a redirection goes
	heredoc  bool     // the next word ends a here-document
	pending  []string // the ends of the here-documents whose text begins on the next line
	depth    int
	body     int    // the depth within the function that is read, 0: none is
	cases    []bool // of each open case: a pattern comes next
	guarded  bool   // the next command follows && or ||
}

// step reads one character, or what it begins.
func (r *reader) step() {
	c := r.text[r.at]
	switch c {
	case '\n':
		r.endCommand()
		r.list = len(r.commands)
		r.advance(1)
		r.skipHeredocs()
	case ' ', '\t':
		r.endWord()
		r.advance(1)
	case '\\':
		r.backslash()
	case '\'', '"', '`', '$':
		r.begin()
		r.quoted(c)
	case '#':
		if r.inWord {
			r.put(1)
		} else {
			r.skipLine()
		}
	case ';', '&', '|', '(', ')':
		r.operator(c)
	case '<', '>':
		r.redirect()
	default:
		r.begin()
		r.put(1)
	}
}

// begin notes that a word has begun, if none has.
func (r *reader) begin() {
	if !r.inWord && len(r.now.Words) == 0 {
		r.now.Line = r.line
	}
	r.inWord = true
}

// advance passes n characters.
func (r *reader) advance(n int) {
	end := min(r.at+n, len(r.text))
	r.line += strings.Count(r.text[r.at:end], "\n")
	r.at = end
}

// put passes n characters, and adds them to the word.
func (r *reader) put(n int) {
	end := min(r.at+n, len(r.text))
	r.word.WriteString(r.text[r.at:end])
	r.advance(n)
}

// rest is the text that follows.
func (r *reader) rest() string { return r.text[r.at:] }

func (r *reader) skipLine() {
	if end := strings.IndexByte(r.rest(), '\n'); end >= 0 {
		r.at += end
	} else {
		r.at = len(r.text)
	}
}

func (r *reader) backslash() {
	if strings.HasPrefix(r.rest(), "\\\n") {
		r.advance(2)
		return
	}
	r.begin()
	r.advance(1)
	r.put(1)
}

// quoted reads what a quote or a dollar sign begins.
func (r *reader) quoted(c byte) {
	switch {
	case c == '\'':
		r.advance(1)
		r.put(r.until("'"))
		r.advance(1)
	case c == '"':
		r.advance(1)
		r.doubleQuoted()
	case c == '`':
		r.put(1)
		r.put(r.until("`") + 1)
	case strings.HasPrefix(r.rest(), "$("), strings.HasPrefix(r.rest(), "${"):
		r.put(balanced(r.rest(), 1))
	default:
		r.put(1)
	}
}

// until returns how many characters there are before a mark, or to the end.
func (r *reader) until(mark string) int {
	if n := strings.Index(r.rest(), mark); n >= 0 {
		return n
	}
	return len(r.rest())
}

func (r *reader) doubleQuoted() {
	for r.at < len(r.text) {
		rest := r.rest()
		switch {
		case rest[0] == '"':
			r.advance(1)
			return
		case strings.HasPrefix(rest, "\\\n"):
			r.advance(2)
		case rest[0] == '\\' && len(rest) > 1 && strings.IndexByte("\"\\$`", rest[1]) >= 0:
			r.advance(1)
			r.put(1)
		case strings.HasPrefix(rest, "$("), strings.HasPrefix(rest, "${"):
			r.put(balanced(rest, 1))
		default:
			r.put(1)
		}
	}
}

// balanced returns where in text the bracket at a place is closed, one past it.
func balanced(text string, bracket int) int {
	opening, closing := text[bracket], byte(')')
	if opening == '{' {
		closing = '}'
	}
	depth, quote := 0, byte(0)
	for i := bracket; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && quote != '\'':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == opening:
			depth++
		case c == closing:
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return len(text)
}

// operator reads what ends a command.
func (r *reader) operator(c byte) {
	rest := r.rest()
	switch {
	case r.inPattern() && strings.IndexByte("()|", c) >= 0:
		r.pattern(c)
	case strings.HasPrefix(rest, ";;"), strings.HasPrefix(rest, ";&"):
		r.endCommand()
		r.list = len(r.commands)
		r.advance(len(rest) - len(strings.TrimLeft(rest, ";&")))
		if n := len(r.cases); n > 0 {
			r.cases[n-1] = true
		}
	case strings.HasPrefix(rest, "&>"):
		r.advance(1) // both streams: what follows is a redirection
	case strings.HasPrefix(rest, "&&"), strings.HasPrefix(rest, "||"):
		r.now.Guarded = true
		r.endCommand()
		r.guarded = true
		r.advance(2)
	case c == '&':
		r.endCommand()
		for i := r.list; i < len(r.commands); i++ {
			r.commands[i].Background = true
		}
		r.list = len(r.commands)
		r.advance(1)
	case c == '(' && strings.HasSuffix(r.word.String(), "="): // an array
		r.put(balanced(rest, 0))
	case c == '(' && strings.HasPrefix(strings.TrimLeft(rest[1:], " \t"), ")"): // NAME(), a function
		r.endWord()
		r.define()
		r.advance(strings.IndexByte(rest, ')') + 1)
	case c == '(' || c == ')':
		r.endCommand()
		if c == '(' {
			r.depth++
		} else {
			r.close()
		}
		r.advance(1)
	default:
		r.endCommand()
		if c == ';' {
			r.list = len(r.commands)
		}
		r.advance(1)
	}
}

// inPattern reports whether what comes is a pattern of case.
func (r *reader) inPattern() bool { return len(r.cases) > 0 && r.cases[len(r.cases)-1] }

// pattern reads a mark within the patterns of case, or the one behind them.
func (r *reader) pattern(c byte) {
	if c == '(' && r.inWord { // @(a|b)
		r.put(balanced(r.rest(), 0))
		return
	}
	r.endCommand()
	if c == ')' {
		r.cases[len(r.cases)-1] = false
		r.list = len(r.commands)
	}
	r.advance(1)
}

// define drops the name of a function, whose body comes next.
func (r *reader) define() {
	r.now = Command{}
	if r.body == 0 {
		r.body = r.depth + 1
	}
}

// close ends a compound command.
func (r *reader) close() {
	r.depth = max(0, r.depth-1)
	if r.depth < r.body {
		r.body = 0
	}
}

// redirect reads a redirection: its operator, and which word it takes.
func (r *reader) redirect() {
	if strings.Trim(r.word.String(), "0123456789") == "" { // the number of the stream
		r.word.Reset()
		r.inWord = false
	}
	r.endWord()
	rest := r.rest()
	switch {
	case strings.HasPrefix(rest, "<("), strings.HasPrefix(rest, ">("):
		r.advance(balanced(rest, 1))
	case strings.HasPrefix(rest, "<<<"):
		r.advance(3)
		r.drop = true
	case strings.HasPrefix(rest, "<<"):
		r.advance(len(rest) - len(strings.TrimLeft(rest, "<-")))
		r.heredoc = true
	default:
		r.advance(len(rest) - len(strings.TrimLeft(rest, "<>&|")))
		r.drop = true
	}
}

// skipHeredocs passes the here-documents that begin on this line.
func (r *reader) skipHeredocs() {
	for _, end := range r.pending {
		for r.at < len(r.text) {
			n := r.until("\n")
			text := strings.TrimLeft(r.rest()[:n], "\t")
			r.advance(n + 1)
			if text == end {
				break
			}
		}
	}
	r.pending = nil
}

func (r *reader) endWord() {
	if !r.inWord {
		return
	}
	word := r.word.String()
	r.word.Reset()
	r.inWord = false
	switch {
	case r.heredoc:
		r.pending = append(r.pending, word)
	case !r.drop:
		r.now.Words = append(r.now.Words, word)
	}
	r.heredoc, r.drop = false, false
	if opensCase(r.now.Words) {
		r.endCommand()
	}
}

// The words that begin a compound command, those that end one, and those that stand between.
var (
	openers  = []string{"if", "for", "while", "until", "case", "select", "{"}
	closers  = []string{"fi", "done", "esac", "}"}
	betweens = []string{"then", "else", "elif", "do", "!", "time"}
)

// endCommand keeps the command that was read, without the words of compound commands and with its assignments apart.
func (r *reader) endCommand() {
	r.endWord()
	c := r.now
	r.now = Command{}
	r.drop, r.heredoc = false, false
	if r.inPattern() && len(c.Words) > 0 && c.Words[0] != "esac" {
		return
	}
	r.compound(&c)
	for len(c.Words) > 0 && isAssignment(c.Words[0]) {
		c.Env = append(c.Env, c.Words[0])
		c.Words = c.Words[1:]
	}
	c.depth, c.function = r.depth, r.body > 0 && r.depth >= r.body
	c.Guarded = c.Guarded || r.guarded
	if len(c.Words) > 0 || len(c.Env) > 0 {
		r.guarded = false
		r.commands = append(r.commands, c)
	}
}

// compound takes away the words of compound commands that a command begins with.
func (r *reader) compound(c *Command) {
	for len(c.Words) > 0 {
		first := c.Words[0]
		switch {
		case first == "function" && len(c.Words) > 1:
			c.Words = c.Words[1:]
			r.define()
		case slices.Contains(openers, first):
			r.depth++
		case slices.Contains(closers, first):
			r.close()
		case !slices.Contains(betweens, first):
			return
		}
		c.Words = c.Words[1:]
		switch first {
		case "if", "elif", "while", "until", "!":
			c.Guarded = true
		case "for", "select":
			c.Words = nil
		case "case":
			c.Words = nil
			r.cases = append(r.cases, true)
		case "esac":
			r.cases = r.cases[:max(0, len(r.cases)-1)]
		}
	}
}

// opensCase reports whether words are the "case WORD in" that patterns follow.
func opensCase(words []string) bool {
	n := len(words)
	return n >= 3 && words[n-1] == "in" && words[n-3] == "case" && !slices.ContainsFunc(words[:n-3], func(word string) bool {
		return !slices.Contains(openers, word) && !slices.Contains(betweens, word)
	})
}

// isAssignment reports whether a word is NAME=….
func isAssignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && isName(name)
}

// isName reports whether text can be the name of a variable.
func isName(text string) bool {
	for i, c := range text {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return text != ""
}
