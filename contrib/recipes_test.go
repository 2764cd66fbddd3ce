// Package contrib holds what others need to install rankpool; its test reads the recipes, without
// the programs that they are for.
package contrib

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

const easyconfig = "easybuild/rankpool-0.1.0.eb"

// TestRecipes checks that the recipes are Python, build with go.mod's version of Go, and install
// with the arguments that the Makefile has.
func TestRecipes(t *testing.T) {
	version := goVersion(t)
	for file, lines := range map[string][]string{
		"spack/package.py": {
			fmt.Sprintf(`depends_on("go@%s:", type="build")`, version), `depends_on("python@3.9:"`,
			`build_targets = ["build"]`, `return ["install", f"PREFIX={self.prefix}"]`,
			`join_path(self.prefix, "share", "rankpool", "python")`,
		},
		easyconfig: {
			fmt.Sprintf("builddependencies = [('Go', '%s.", version), "buildopts = 'build'",
			"installopts = 'PREFIX=%(installdir)s'", "{'PYTHONPATH': 'share/rankpool/python'}",
		},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s has no %s", file, line)
			}
		}
		parse := exec.Command("python3", "-c", "import ast, sys; ast.parse(sys.stdin.read())")
		parse.Stdin = bytes.NewReader(text)
		if out, err := parse.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// TestDist checks that "make dist" writes the file that the recipes look for, with the commands in
// the recipes and documents.
func TestDist(t *testing.T) {
	const words = "make dist VERSION=0.1.0"
	out, err := exec.Command("make", "--no-print-directory", "-C", "..", "-n", "dist",
		"VERSION=0.1.0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.Contains(string(out), "tar -czf build/rankpool-0.1.0.tar.gz ") {
		t.Errorf("%s would run\n%s", words, out)
	}
	for _, file := range []string{"README.md", "spack/package.py", easyconfig} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), words) ||
			!strings.Contains(string(text), "build/rankpool-0.1.0.tar.gz") {
			t.Errorf("%s does not say %q, and what it writes", file, words)
		}
	}
	help, err := exec.Command("make", "--no-print-directory", "-C", "..", "help").Output()
	if err != nil || !strings.Contains(string(help), "VERSION=") {
		t.Errorf("make help says nothing of VERSION=: %v", err)
	}
}

// TestModulefiles compares the two modulefiles: they set the same paths.
func TestModulefiles(t *testing.T) {
	want := "PATH bin, PYTHONPATH share/rankpool/python"
	for file, pattern := range map[string]string{
		"modulefiles/rankpool.lua": `(?m)^prepend_path\("(\w+)", pathJoin\(prefix, "([^"]+)"\)\)`,
		"modulefiles/rankpool.tcl": `(?m)^prepend-path (\w+) \$prefix/(\S+)$`,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			paths = append(paths, match[1]+" "+match[2])
		}
		if got := strings.Join(paths, ", "); got != want {
			t.Errorf("%s sets %s, want %s", file, got, want)
		}
	}
}

// goVersion returns go.mod's, as in "1.26".
func goVersion(t *testing.T) string {
	text, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(text)
	if found == nil {
		t.Fatal("go.mod names no version of Go")
	}
	return string(found[1])
}
