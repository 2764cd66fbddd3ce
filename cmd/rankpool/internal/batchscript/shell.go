package batchscript

import (
	"errors"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A Command is one simple command of a script: words without their quotes, substitutions ($x, $(…))
// as they are written.
type Command struct {
	Line       int      // where it begins
	Env        []string // the assignments before its words; all there is of a bare assignment
	Words      []string // the command and its arguments; empty for bare assignments
	Background bool     // it, or the list that it is part of, ends in &
	Guarded    bool     // something checks its failure: && or ||, if, while, or !
	depth      int      // how many if, for, while, case, ( and { are open
	function   bool     // it is part of a function
}

// calls reports whether it is a call of one of some programs.
func (c Command) calls(programs ...string) bool {
	return len(c.Words) > 0 && slices.Contains(programs, c.Words[0])
}

// asksStatus reports whether a command uses the exit status of the one before it.
func (c Command) asksStatus() bool {
	return slices.ContainsFunc(slices.Concat(c.Env, c.Words), func(word string) bool {
		return strings.Contains(word, "$?") || strings.Contains(word, "${?}")
	})
}

// readCommands returns the simple commands of a bash script in the order of the text, without those
// in substitutions. If the text is not valid bash, it returns the commands before the error, and an
// error for syntaxError.
func readCommands(text string) ([]Command, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	r := reader{text: text}
	r.statements(file.Stmts, Command{})
	return r.commands, err
}

// syntaxError returns the line and the text of an error of readCommands.
func syntaxError(err error) (line int, text string) {
	var parse syntax.ParseError
	var lang syntax.LangError
	switch {
	case errors.As(err, &parse):
		return int(parse.Pos.Line()), parse.Text
	case errors.As(err, &lang):
		return int(lang.Pos.Line()), lang.Feature
	}
	return 1, err.Error()
}

// reader collects the commands of a script.
type reader struct {
	text     string
	commands []Command
}

func (r *reader) statements(list []*syntax.Stmt, around Command) {
	for _, s := range list {
		r.statement(s, around)
	}
}

// statement reads a statement; around describes the enclosing ones.
func (r *reader) statement(s *syntax.Stmt, around Command) {
	if s == nil || s.Cmd == nil {
		return
	}
	around.Background = around.Background || s.Background
	around.Guarded = around.Guarded || s.Negated
	inside := around
	inside.depth++
	condition := inside
	condition.Guarded = true
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		r.add(c, around, r.assignments(c.Assigns), r.words(c.Args))
	case *syntax.DeclClause:
		r.add(c, around, nil, append([]string{c.Variant.Value}, r.assignments(c.Args)...))
	case *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		r.add(c, around, nil, strings.Fields(r.source(c)))
	case *syntax.BinaryCmd:
		around.Guarded = around.Guarded || c.Op == syntax.AndStmt || c.Op == syntax.OrStmt
		r.statement(c.X, around)
		r.statement(c.Y, around)
	case *syntax.TimeClause:
		r.statement(c.Stmt, around)
	case *syntax.CoprocClause:
		around.Background = true
		r.statement(c.Stmt, around)
	case *syntax.IfClause:
		for ; c != nil; c = c.Else {
			r.statements(c.Cond, condition)
			r.statements(c.Then, inside)
		}
	case *syntax.WhileClause:
		r.statements(c.Cond, condition)
		r.statements(c.Do, inside)
	case *syntax.ForClause:
		r.statements(c.Do, inside)
	case *syntax.CaseClause:
		for _, item := range c.Items {
			r.statements(item.Stmts, inside)
		}
	case *syntax.Block:
		r.statements(c.Stmts, inside)
	case *syntax.Subshell:
		r.statements(c.Stmts, inside)
	case *syntax.FuncDecl:
		around.function = true
		r.statement(c.Body, around)
	}
}

// add appends a command.
func (r *reader) add(at syntax.Node, around Command, env, words []string) {
	around.Line, around.Env, around.Words = int(at.Pos().Line()), env, words
	r.commands = append(r.commands, around)
}

func (r *reader) words(words []*syntax.Word) []string {
	var texts []string
	for _, w := range words {
		texts = append(texts, r.word(w))
	}
	return texts
}

// assignments returns NAME=VALUE, and for export and the like also names without a value.
func (r *reader) assignments(assigns []*syntax.Assign) []string {
	var texts []string
	for _, a := range assigns {
		switch {
		case a.Array != nil || a.Index != nil:
			texts = append(texts, r.source(a))
		case a.Name == nil:
			texts = append(texts, r.word(a.Value))
		case a.Naked:
			texts = append(texts, a.Name.Value)
		case a.Append:
			texts = append(texts, a.Name.Value+"+="+r.word(a.Value))
		default:
			texts = append(texts, a.Name.Value+"="+r.word(a.Value))
		}
	}
	return texts
}

// word returns a word without its quotes; nil is an empty one.
func (r *reader) word(w *syntax.Word) string {
	var b strings.Builder
	if w != nil {
		for _, part := range w.Parts {
			r.part(&b, part)
		}
	}
	return b.String()
}

// part writes a part of a word without its quotes.
func (r *reader) part(b *strings.Builder, part syntax.WordPart) {
	switch p := part.(type) {
	case *syntax.Lit:
		unescape(b, p.Value, "")
	case *syntax.SglQuoted:
		b.WriteString(p.Value)
	case *syntax.DblQuoted:
		for _, inner := range p.Parts {
			if lit, isLit := inner.(*syntax.Lit); isLit {
				unescape(b, lit.Value, "\"\\$`")
			} else {
				r.part(b, inner)
			}
		}
	default:
		b.WriteString(r.source(part))
	}
}

// unescape writes text without the backslashes before the characters of escaped, "": before any.
func unescape(b *strings.Builder, text, escaped string) {
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+1 < len(text) &&
			(escaped == "" || strings.IndexByte(escaped, text[i+1]) >= 0) {
			i++
		}
		b.WriteByte(text[i])
	}
}

// source returns the text of a node.
func (r *reader) source(n syntax.Node) string {
	from, to := n.Pos().Offset(), n.End().Offset()
	size := uint(len(r.text))
	return r.text[min(from, size):min(max(from, to), size)]
}

// isAssignment reports whether a word is NAME=….
func isAssignment(word string) bool {
	name, _, found := strings.Cut(word, "=")
	return found && syntax.ValidName(name)
}
