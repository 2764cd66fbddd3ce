// Package batchscript writes Slurm batch scripts that run a training with rankpool, and finds
// mistakes in existing ones. It is pure: it uses no file, process or environment.
package batchscript

import (
	"fmt"
	"regexp"
	"strings"
)

// MaxBytes is the size of the largest script that Parse reads. The parser recurses as deep as
// brackets nest, which takes up to 5 KB of stack each; Go ends a program whose stack would grow
// beyond 512 MiB.
const MaxBytes = 64 << 10

// A Script is a parsed batch script, as far as this package understands it. Lines count from 1.
type Script struct {
	shell
	directives []option // the #SBATCH lines before the first command, which sbatch reads
	malformed  []line   // comments among them that look like directives
	shebang    string
	syntax     error // why bash does not read the text
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
	lines := strings.Split(text, "\n")
	s := &Script{}
	if strings.HasPrefix(lines[0], "#!") {
		s.shebang = lines[0]
	}
	s.readDirectives(lines)
	s.shell, s.syntax = readShell(text)
	return s, nil
}

// readDirectives reads the lines that begin with #SBATCH, of the first component of the job.
//
// Source: SchedMD, sbatch(1), DESCRIPTION: sbatch stops at the first line that is neither empty nor
// a comment.
func (s *Script) readDirectives(lines []string) {
	for i, text := range lines {
		trimmed := strings.TrimSpace(text)
		if trimmed != "" && trimmed[0] != '#' {
			return
		}
		rest, isDirective := strings.CutPrefix(strings.ReplaceAll(text, "\t", " "), "#SBATCH ")
		words := strings.Fields(rest)
		switch {
		case isDirective && len(words) > 0 && (words[0] == "hetjob" || words[0] == "packjob"):
			return
		case isDirective && len(words) > 0 && words[0][0] == '-':
			s.directives = append(s.directives, parseOptions(words, i+1)...)
		case isDirective || nearlyDirective.MatchString(trimmed):
			s.malformed = append(s.malformed, line{i + 1, trimmed})
		}
	}
}

// nearlyDirective is a comment that was meant as a directive: in lower case, after blanks, or
// without a blank before the option. "##SBATCH" and "# SBATCH" disable a directive.
var nearlyDirective = regexp.MustCompile(`^(?i)#SBATCH\s*-`)
