package batchscript

import (
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A command is one simple command of a script: words without their quotes, substitutions ($x, $(…))
// as they are written.
type command struct {
	line  int
	words []string // without assignments before them
	cut   bool     // it ends in a backslash and a blank
}

// calls reports whether it is a call of one of some programs.
func (c command) calls(programs ...string) bool {
	return len(c.words) > 0 && slices.Contains(programs, c.words[0])
}

// A shell is what bash reads of a script.
type shell struct {
	commands []command       // in the order of the text, without those in substitutions
	late     []line          // the #SBATCH lines behind the first of them
	uses     []line          // names of variables where they are used
	assigned map[string]bool // names of variables that the script sets
}

// readShell reads a bash script; if it is not valid bash, it returns the error, and nothing else.
func readShell(text string) (shell, error) {
	file, err := syntax.NewParser(syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	s := shell{assigned: map[string]bool{}}
	if err != nil {
		return s, err
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.CmdSubst, *syntax.ProcSubst:
			return false
		case *syntax.Assign:
			if n.Name != nil {
				s.assigned[n.Name.Value] = true
			}
		case *syntax.ParamExp:
			if n.Param != nil {
				s.uses = append(s.uses, line{int(n.Pos().Line()), n.Param.Value})
			}
		case *syntax.CallExpr:
			c := command{line: int(n.Pos().Line())}
			for _, word := range n.Args {
				c.words = append(c.words, plain(text, word.Parts, anyEscape))
				c.cut = word.Lit() == `\ `
			}
			if len(c.words) > 0 {
				s.commands = append(s.commands, c)
			}
		case *syntax.Comment:
			if n.Hash.Col() == 1 && strings.HasPrefix(n.Text, "SBATCH ") && len(s.commands) > 0 {
				s.late = append(s.late, line{int(n.Hash.Line()), n.Text})
			}
		}
		return true
	})
	return s, nil
}

// What a backslash protects, outside of quotes and in double quotes.
var (
	anyEscape    = regexp.MustCompile(`(?s)\\(.)`)
	quotedEscape = regexp.MustCompile("\\\\([\"\\\\$`])")
)

// plain returns a word without its quotes.
func plain(text string, parts []syntax.WordPart, escape *regexp.Regexp) string {
	var b strings.Builder
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(escape.ReplaceAllString(p.Value, "$1"))
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(plain(text, p.Parts, quotedEscape))
		default:
			b.WriteString(text[p.Pos().Offset():p.End().Offset()])
		}
	}
	return b.String()
}
