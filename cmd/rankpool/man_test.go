package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rankpool/cmd/internal/manual"
)

// TestManPages checks that every command that help lists has a page, and that the pages depend on
// neither time nor place.
func TestManPages(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, dir := range []string{first, second} {
		if err := manual.Write(dir, newRootCommand(), aboutEnvironment); err != nil {
			t.Fatal(err)
		}
		t.Setenv("SOURCE_DATE_EPOCH", "86400")
	}
	names := []string{"rankpool.1"}
	for _, c := range newRootCommand().Commands() {
		if c.IsAvailableCommand() {
			names = append(names, "rankpool-"+c.Name()+".1")
		}
	}
	written, err := os.ReadDir(first)
	if err != nil || len(written) != len(names) {
		t.Errorf("%d pages, want %d: %v", len(written), len(names), err)
	}
	for _, name := range names {
		page, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Error(err)
			continue
		}
		again, err := os.ReadFile(filepath.Join(second, name))
		if err != nil || !bytes.Equal(page, again) {
			t.Errorf("%s differs from one time to the next: %v", name, err)
		}
		for _, wrong := range []string{"0001", "1970", time.Now().Format("2006")} {
			title, _, _ := bytes.Cut(page[bytes.Index(page, []byte(".TH")):], []byte("\n"))
			if bytes.Contains(title, []byte(wrong)) {
				t.Errorf("%s has a date: %s", name, title)
			}
		}
		for _, section := range []string{
			".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION",
			".SH OPTIONS",
		} {
			if !bytes.Contains(page, []byte(section)) {
				t.Errorf("%s has no %s", name, section)
			}
		}
	}
}

// TestManPageOfRankpool checks what only rankpool(1) contains: the exit codes, the commands, and
// every variable that the code reads.
func TestManPageOfRankpool(t *testing.T) {
	dir := t.TempDir()
	if err := manual.Write(dir, newRootCommand(), aboutEnvironment); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "rankpool.1"))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), `\`, "")
	for _, want := range []string{
		".SH EXIT STATUS", "never returns 253", ".SH ENVIRONMENT",
		"rankpool-run(1)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("rankpool.1 lacks %q", want)
		}
	}
	for _, c := range newRootCommand().Commands() {
		if entry := "rankpool-" + c.Name() + "fP(1)\n" + c.Short; c.IsAvailableCommand() &&
			!strings.Contains(text, entry) {
			t.Errorf("rankpool.1 does not list %s", c.Name())
		}
	}
	for _, name := range variablesOfCode(t) {
		if !strings.Contains(text, name) {
			t.Errorf("rankpool.1 does not explain %s (aboutEnvironment in environment.go)", name)
		}
	}
}

// variablesOfCode returns the RANKPOOL_… variables that the code uses, tests aside.
func variablesOfCode(t *testing.T) []string {
	variable := regexp.MustCompile(`["']RANKPOOL_[A-Z_]+["']`)
	var names []string
	for _, dir := range []string{
		".", "../internal", "../../mpicache", "../../staging", "../../slurm",
		"../../python/rankpool",
	} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || strings.HasSuffix(path, "_test.go") ||
				!strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".py") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, found := range variable.FindAllString(string(code), -1) {
				names = append(names, strings.Trim(found, `"'`))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	if names = slices.Compact(names); len(names) < 4 {
		t.Fatalf("only %v were found", names)
	}
	return names
}
