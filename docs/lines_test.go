package docs

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// mostColumns is the maximum length of a line; golangci-lint has the same bound for Go.
const mostColumns = 100

// readmeLines is the maximum length of README.md: details belong in docs.
const readmeLines = 150

// unbreakable matches lines that may be longer: rows of tables and, in programs, long strings,
// which people search for as a whole.
var unbreakable = map[string]*regexp.Regexp{
	".md":      regexp.MustCompile(`^\|`),
	".sh":      regexp.MustCompile(`^$`),
	"Makefile": regexp.MustCompile(`^$`),
	".py":      regexp.MustCompile(`"[^"]{40,}"|'[^']{40,}'`),
}

// TestLinesFit checks that lines of documents, scripts, Python programs and the Makefile have at
// most 100 columns.
func TestLinesFit(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := entry.Name(); entry.IsDir() {
			if name != ".." && notOurs.MatchString(name) {
				return filepath.SkipDir
			}
			return nil
		}
		exempt, checked := unbreakable[cmp.Or(filepath.Ext(path), entry.Name())]
		if !checked {
			return nil
		}
		text, err := os.ReadFile(path)
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimSuffix(line, "\n")
			columns := utf8.RuneCountInString(line)
			if columns > mostColumns && !exempt.MatchString(line) {
				t.Errorf("%s:%d has %d columns, more than %d", path, number, columns, mostColumns)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestReadmeIsShort(t *testing.T) {
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > readmeLines {
		t.Errorf("README.md has %d lines, more than %d", n, readmeLines)
	}
}

// TestDocumentsAreShort counts the words of the documents; what only fences or rules off a table
// is no word.
func TestDocumentsAreShort(t *testing.T) {
	for most, patterns := range map[int][]string{
		20000: {"*.md", "../README.md", "../CONTRIBUTING.md"},
		6000:  {"decisions/*.md", "wire/*.md"},
	} {
		words := 0
		for _, pattern := range patterns {
			paths, err := filepath.Glob(pattern)
			if err != nil || len(paths) == 0 {
				t.Fatalf("%s: %d files, %v", pattern, len(paths), err)
			}
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				for _, field := range strings.Fields(string(text)) {
					if strings.ContainsFunc(field, wordRune) {
						words++
					}
				}
			}
		}
		if words > most {
			t.Errorf("%v have %d words, more than %d: move or remove some", patterns, words, most)
		}
	}
}

func wordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
