// Package batchscript writes Slurm batch scripts that run a training with rankpool, and finds
// mistakes in existing ones. It is pure: it uses no file, process or environment.
package batchscript

import (
	"fmt"
	"strings"
)

// MaxBytes is the size of the largest script that Parse reads. The parser recurses as deep as
// brackets nest, which takes up to 5 KB of stack each; Go ends a program whose stack would grow
// beyond 512 MiB.
const MaxBytes = 64 << 10

// maxDirectives bounds what the checks examine; a script has a dozen.
const maxDirectives = 1000

// A Script is a parsed batch script, as far as sbatch and this package understand it.
//
// Lines count from 1. It does not change after Parse.
type Script struct {
	Directives []Option  // what sbatch reads: the #SBATCH lines before the first command
	Late       []Option  // what sbatch does not read: the #SBATCH lines after it
	Commands   []Command // in the order of the text
	lines      []string
	shebang    string
	dosLine    int    // the first line that ends with a carriage return, 0: none
	malformed  []line // comments that look like directives
	stray      []line // words of directives that are not options
	syntax     error  // why bash reads no further than Commands; nil: it reads all
	hetJob     bool   // there are several components, and Directives are the first one's
}

// A line is a piece of the script's text, and where it begins.
type line struct {
	number int
	text   string
}

// Parse parses a batch script. Text that is not a shell script gives a meaningless Script, but
// never a panic.
//
// The error means that the text is longer than MaxBytes or contains zero bytes.
func Parse(text string) (*Script, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("batchscript: the script has %d bytes, and at most %d can be checked",
			len(text), MaxBytes)
	}
	if strings.ContainsRune(text, 0) {
		return nil, fmt.Errorf("batchscript: not a script: it contains zero bytes")
	}
	s := &Script{lines: strings.Split(text, "\n")}
	for i, l := range s.lines {
		if bare, found := strings.CutSuffix(l, "\r"); found {
			s.lines[i] = bare
			if s.dosLine == 0 {
				s.dosLine = i + 1
			}
		}
	}
	if strings.HasPrefix(s.lines[0], "#!") {
		s.shebang = s.lines[0]
	}
	s.readDirectives()
	s.Commands, s.syntax = readCommands(strings.Join(s.lines, "\n"))
	return s, nil
}

// readDirectives reads the lines that begin with #SBATCH.
//
// Source: SchedMD, sbatch(1), DESCRIPTION: sbatch stops at the first line that is neither empty nor
// a comment.
func (s *Script) readDirectives() {
	late := false
	for i, text := range s.lines {
		if len(s.Directives)+len(s.Late)+len(s.malformed)+len(s.stray) > maxDirectives {
			return
		}
		trimmed := strings.TrimSpace(text)
		if !strings.HasPrefix(trimmed, "#") {
			late = late || trimmed != ""
			continue
		}
		rest, isDirective := strings.CutPrefix(text, "#SBATCH")
		if !isDirective || rest != "" && !strings.ContainsAny(rest[:1], " \t") {
			if nearlyDirective(trimmed) {
				s.malformed = append(s.malformed, line{i + 1, trimmed})
			}
			continue
		}
		words := directiveWords(rest)
		if len(words) > 0 && (words[0] == "hetjob" || words[0] == "packjob") {
			s.hetJob = true
		}
		options, stray := parseOptions(words, i+1, sbatchTable)
		switch {
		case late:
			s.Late = append(s.Late, options...)
		case !s.hetJob:
			s.Directives = append(s.Directives, options...)
			for _, word := range stray {
				s.stray = append(s.stray, line{i + 1, word})
			}
		}
	}
}

// nearlyDirective reports whether a comment was meant as a directive: in lower case, after blanks,
// or without a blank before the option. "##SBATCH" and "# SBATCH" are the usual ways to disable a
// directive.
func nearlyDirective(comment string) bool {
	const mark = "#SBATCH"
	return len(comment) > len(mark) && strings.EqualFold(comment[:len(mark)], mark) &&
		strings.HasPrefix(strings.TrimLeft(comment[len(mark):], " \t"), "-")
}

// directiveWords splits the text of a directive as sbatch does: blanks separate, quotes group, a
// backslash escapes the next character, and # at the beginning of a word starts a comment.
//
// Source: Slurm, src/sbatch/opt.c, _get_argument.
func directiveWords(text string) []string {
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	end := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case c == '\\' && i+1 < len(text) && quote != '\'':
			i++
			word.WriteByte(text[i])
			inWord = true
		case quote != 0:
			word.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inWord = c, true
		case c == ' ' || c == '\t':
			end()
		case c == '#' && !inWord:
			return words
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	end()
	return words
}
