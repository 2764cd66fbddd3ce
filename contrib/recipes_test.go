// Package contrib holds what others need to install rankpool; its test evaluates the recipes as far
// as that goes without the programs that they are for.
package contrib

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// evaluate runs the recipes with stand-ins for Spack and EasyBuild, and prints the results.
const evaluate = `
import json, sys, types

said = {"version": [], "variant": [], "depends_on": []}
spack = types.ModuleType("spack")
package = types.ModuleType("spack.package")
def directive(name):
    return lambda *args, **kwargs: said[name].append([*args, kwargs])
for name in said:
    setattr(package, name, directive(name))
package.join_path = lambda *parts: "/".join(parts)
makefile = types.ModuleType("makefile")
makefile.MakefilePackage = type("MakefilePackage", (), {})
for name in ["spack_repo", "spack_repo.builtin", "spack_repo.builtin.build_systems"]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["spack"], sys.modules["spack.package"] = spack, package
sys.modules["spack_repo.builtin.build_systems.makefile"] = makefile

scope = {}
exec(compile(open("spack/package.py").read(), "package.py", "exec"), scope)

class Environment(dict):
    set = prepend_path = dict.__setitem__

def package():
    p, env = scope["Rankpool"](), Environment()
    p.prefix, p.stage = "/prefix", types.SimpleNamespace(path="/stage")
    p.setup_build_environment(env)
    p.setup_run_environment(env)
    targets = {"build": p.build_targets, "install": p.install_targets}
    return targets | {"env": env, "url": p.url_for_version("0.1.0")}

system = {"name": "system", "version": "system"}
eb = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz", "SYSTEM": system}
exec(compile(open(sys.argv[1]).read(), "easyconfig", "exec"), eb)
eb = {k: v for k, v in eb.items() if not k.startswith("_")}
json.dump({"said": said, "package": package(), "easyconfig": eb}, sys.stdout)
`

const easyconfig = "easybuild/rankpool-0.1.0.eb"

// target is what a recipe calls make with.
type target struct {
	Build, Install []string
	Env            map[string]string
	URL            string
}

// recipes is the output of evaluate.
type recipes struct {
	Said       map[string][][]any
	Package    target
	Easyconfig map[string]any
}

func evaluated(t *testing.T) recipes {
	run := exec.Command("python3", "-c", evaluate, easyconfig)
	run.Stderr = os.Stderr
	out, err := run.Output()
	if err != nil {
		t.Fatal(err)
	}
	var r recipes
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSpackPackage(t *testing.T) {
	r := evaluated(t)
	for _, c := range []struct {
		got  []string
		want string
	}{
		{r.Package.Build, "build"},
		{r.Package.Install, "install PREFIX=/prefix"},
	} {
		if got := strings.Join(c.got, " "); got != c.want {
			t.Errorf("make %s, want make %s", got, c.want)
		}
	}
	if !strings.HasPrefix(r.Package.URL, "file:///") ||
		!strings.HasSuffix(r.Package.URL, "/rankpool-0.1.0.tar.gz") {
		t.Errorf("the source is %s", r.Package.URL)
	}
	if r.Package.Env["PYTHONPATH"] != "/prefix/share/rankpool/python" ||
		r.Package.Env["GOCACHE"] != "/stage/go-cache" {
		t.Errorf("the environment is %v", r.Package.Env)
	}
	var needs []string
	for _, d := range r.Said["depends_on"] {
		needs = append(needs, d[0].(string))
	}
	if want := []string{"go@" + goVersion(t) + ":", "gmake", "python@3.9:"}; !slices.Equal(needs,
		want) {
		t.Errorf("it depends on %v, want %v", needs, want)
	}
}

func TestEasyconfig(t *testing.T) {
	r := evaluated(t).Easyconfig
	for name, want := range map[string]string{
		"name": "rankpool", "version": "0.1.0", "buildopts": "build",
		"installopts": "PREFIX=%(installdir)s",
	} {
		if r[name] != want {
			t.Errorf("%s is %q, want %q", name, r[name], want)
		}
	}
	for _, name := range []string{
		"easyblock", "homepage", "description", "toolchain", "sources",
		"moduleclass",
	} {
		if r[name] == nil {
			t.Errorf("%s is not given", name)
		}
	}
	goes := r["builddependencies"].([]any)[0].([]any)[1].(string)
	if !strings.HasPrefix(goes, goVersion(t)) {
		t.Errorf("it builds with Go %s, and go.mod wants %s", goes, goVersion(t))
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
