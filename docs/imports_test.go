// Package docs has no code. Its tests check that packages import only along the arrows below, and
// that documents are short.
package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "rankpool"

// arrows lists for each package which packages of ours it may import, and why. A package that is
// not listed may import none.
var arrows = map[string]map[string]string{
	"scheduler/plan": {
		"scheduler/draw": "a plan has draws",
	},
	"scheduler/protocol": {
		"scheduler/draw": "samplers by name, SampleID",
		"scheduler/plan": "it decides when plans are made",
	},
	"scheduler/stager": {
		"scheduler/draw": "SampleID, owners",
		"scheduler/plan": "it carries out plans",
	},
	"scheduler/systems": {
		"scheduler/draw":         "a system is a sampler",
		"scheduler/plan":         "and follows plans",
		"scheduler/protocol":     "and a scorer, or a learner",
		"scheduler/stager":       "and a policy",
		"scheduler/systems/hnsw": "SpiderCache's graph of nearest neighbours",
	},
	"staging/dataset": {
		"scheduler/draw": "SampleID",
		"staging/posix":  "times after 2262",
		"staging/shards": "what a shard has given to an index",
	},
	"staging/storage": {
		"scheduler/draw":  "SampleID",
		"staging/dataset": "where a sample is, and what is known of its bytes",
		"staging/posix":   "system calls on files",
		"staging/shards":  "the checksums of TFRecord files",
	},
	"staging/index": {
		"mpicache/transport":       "the ranks that index together",
		"mpicache/transport/ranks": "requests between them",
		"scheduler/draw":           "SampleID",
		"staging/dataset":          "the manifests that it makes",
		"staging/posix":            "system calls on files",
		"staging/shards":           "samples within tar and TFRecord files",
		"staging/storage":          "checksums are of what storage gives",
	},
	"staging/layout": {
		"scheduler/draw": "SampleID",
		"staging/posix":  "system calls on files",
	},
	"staging/stage": {
		"mpicache/transport":       "the ranks that stage together",
		"mpicache/transport/ranks": "messages between them",
		"staging/posix":            "system calls on files",
	},
	"staging/pack": {
		"mpicache/transport/ranks": "what ranks send each other is encoded",
		"scheduler/draw":           "SampleID",
		"staging/dataset":          "the samples to pack",
		"staging/index":            "the name of a folder's manifest",
		"staging/posix":            "system calls on files",
		"staging/shards":           "the shards that it writes",
		"staging/storage":          "how storage is read",
	},
	"staging/tier": {
		"scheduler/draw": "SampleID",
		"staging/posix":  "system calls on files",
	},
	"staging/tier/keep": {
		"scheduler/draw":      "SampleID, and which rank owns a sample",
		"staging/posix":       "system calls on files",
		"staging/tier":        "requests to a disk, with time-outs",
		"staging/tier/access": "who else may read a copy",
	},
	"staging/tier/access": {"staging/posix": "the numbers of file systems"},
	"mpicache": {
		"mpicache/client":          "the clients at the door",
		"mpicache/door":            "the socket of the clients",
		"mpicache/files":           "the rank's folder",
		"mpicache/liveness":        "the launcher of simulated jobs",
		"mpicache/message":         "the messages of other ranks",
		"mpicache/outside":         "clock and goroutines",
		"mpicache/slab":            "the memory for samples",
		"mpicache/stats":           "what a rank counts",
		"mpicache/store":           "the samples",
		"mpicache/training":        "the trainings",
		"mpicache/transport":       "the exchange with other ranks",
		"mpicache/transport/ranks": "the watch over other ranks",
		"scheduler/draw":           "SampleID",
		"scheduler/plan":           "who consumes a draw",
		"scheduler/stager":         "how trainings share memory",
		"scheduler/systems":        "the options of a system",
	},
	"mpicache/client": {
		"scheduler/draw":     "the sampler in torch's order",
		"scheduler/plan":     "who consumes a draw",
		"scheduler/protocol": "what a training is opened with",
		"scheduler/systems":  "what a system needs to know of a training",
		"mpicache/door":      "the frames of clients",
		"mpicache/store":     "the data sets",
		"mpicache/training":  "what clients ask of trainings",
	},
	"mpicache/training": {
		"scheduler/draw":     "samplers",
		"scheduler/plan":     "the plans that it makes",
		"scheduler/protocol": "a training drives a coordinator",
		"scheduler/stager":   "what it tells the stager",
		"scheduler/systems":  "samplers and policies",
		"mpicache/door":      "the replies to clients",
		"mpicache/fields":    "what other ranks send",
		"mpicache/files":     "the rank's folder, states",
		"mpicache/message":   "the messages of other ranks",
		"mpicache/stats":     "what a training counts",
		"mpicache/store":     "the samples",
	},
	"mpicache/store": {
		"scheduler/draw":     "SampleID",
		"scheduler/plan":     "the plans of lanes, who owns a sample",
		"scheduler/stager":   "a store drives a stager",
		"mpicache/fields":    "what other ranks send",
		"mpicache/message":   "the messages of other ranks",
		"mpicache/outside":   "clock and goroutines",
		"mpicache/slab":      "the memory for samples",
		"mpicache/stats":     "what a store counts",
		"mpicache/transport": "the exchange with other ranks",
	},
	"mpicache/message": {
		"mpicache/fields":    "the fields of a message",
		"mpicache/transport": "who the other ranks are",
	},
	"mpicache/door": {
		"mpicache/fields":    "the fields of frames",
		"mpicache/stats":     "what workers count, and a rank tells",
		"scheduler/draw":     "SampleID",
		"scheduler/plan":     "the plans that it writes",
		"scheduler/protocol": "specs of trainers, digests",
		"scheduler/stager":   "sources of samples",
	},
	"mpicache/door/doortest": {"mpicache/door": "the kinds of frames"},
	"mpicache/transport": {
		"mpicache/transport/mpi":    "the calls of MPI",
		"mpicache/transport/mpilib": "the library to load",
	},
	"mpicache/transport/mpi": {"mpicache/transport/mpilib": "which texts are MPICH's"},
	"mpicache/transport/ranks": {
		"mpicache/liveness":  "who has been silent for too long",
		"mpicache/transport": "it is shared by protocols",
	},
	"cmd/rankpool": {all: "it wires everything"},
	"cmd/rankpool-lab": {
		"benchmarks/slowfs":                    "slow storage that is emulated",
		"cmd/internal/exit":                    "wrong usage, signals",
		"cmd/internal/outlet":                  "stderr",
		"cmd/internal/manual":                  "its man pages",
		"cmd/internal/program":                 "a command line of ours",
		"cmd/internal/runlog":                  "what each training did",
		"cmd/internal/version":                 "its version",
		"cmd/rankpool-lab/internal/compare":    "trainings, one after the other",
		"cmd/rankpool-lab/internal/sidebyside": "a page about them",
		"cmd/rankpool-lab/internal/simulate":   "trainings that are simulated",
	},
	"cmd/rankpool-lab/internal/compare": {
		"benchmarks/slowfs":                    "--slowfs: storage that is emulated",
		"cmd/internal/exit":                    "wrong options, signals",
		"cmd/internal/outlet":                  "stderr",
		"cmd/rankpool-lab/internal/sidebyside": "the page",
		"cmd/internal/runlog":                  "what each training did",
		"cmd/internal/version":                 "results of another version are not used again",
		"scheduler/systems":                    "the systems that it compares",
	},
	"cmd/internal/manual": {
		"cmd/internal/program": "it writes pages by a command",
		"cmd/internal/version": "man pages name it",
	},
	"cmd/internal/program": {
		"cmd/internal/exit":    "wrong usage",
		"cmd/internal/outlet":  "stderr",
		"cmd/internal/version": "--version",
	},
	"cmd/rankpool/internal/batchscript": {
		"cmd/internal/program":            "which flag a misspelt one means",
		"cmd/rankpool/internal/launchers": "what in a script starts trainers",
		"slurm":                           "sizes as sbatch reads them",
		"staging/sizes":                   "sizes as people write them",
	},
	"cmd/rankpool/internal/control": {
		"cmd/rankpool/internal/session": "where the doors are",
		"mpicache/door":                 "the client of a door",
	},
	"cmd/rankpool/internal/doctor": {
		"mpicache/transport":       "joins its tasks",
		"mpicache/transport/ranks": "greetings and signs of life between them",
		"scheduler/draw":           "SampleID",
		"slurm":                    "the job",
		"staging/dataset":          "the data",
		"staging/index":            "how they are found",
		"staging/layout":           "files in an archive",
		"staging/posix":            "the numbers of file systems",
	},
	"cmd/rankpool/internal/launch": {all: "it starts, watches and ends everything"},
	"cmd/rankpool/internal/memory": {
		"cmd/internal/exit": "wrong sizes",
		"mpicache":          "the data sets' parts",
		"mpicache/slab":     "what a sample takes",
		"scheduler/draw":    "who owns a sample",
		"scheduler/systems": "the capacity of a published system",
		"slurm":             "the node's limits",
		"staging/sizes":     "sizes as people write them",
	},
	"cmd/rankpool/internal/metrics":  {"mpicache/stats": "a rank's statistics"},
	"cmd/rankpool/internal/messages": {"cmd/internal/outlet": "stderr"},
	"cmd/internal/outlet/outlettest": {"cmd/internal/outlet": "what it reads"},
	"cmd/rankpool/internal/progress": {
		"mpicache/door":       "how far training is",
		"cmd/internal/outlet": "stderr, on a terminal or not",
	},
	"cmd/rankpool/internal/rank": {all: "it wires a rank"},
	"cmd/internal/report": {
		"cmd/internal/runlog": "a report is made of a run log",
		"cmd/internal/svg":    "its plots",
		"mpicache/stats":      "the counters, and what plots call them",
	},
	"cmd/internal/runlog":            {"mpicache/stats": "a rank's statistics"},
	"cmd/internal/runlog/runlogtest": {"mpicache/stats": "statistics that no rank had"},
	"cmd/internal/runlog/logmaker": {
		"cmd/internal/runlog/runlogtest": "writes its log",
	},
	"cmd/rankpool/internal/session": {
		"slurm":           "a session of a job has the job's name",
		"staging/dataset": "the index that the run's ranks share",
	},
	"cmd/rankpool-lab/internal/sidebyside": {
		"cmd/internal/report": "parts of a page",
		"cmd/internal/runlog": "it is made of run logs",
		"cmd/internal/svg":    "its plots",
		"mpicache/stats":      "the counters, and what plots call them",
	},
	"cmd/rankpool-lab/internal/simulate": {
		"benchmarks/nopfs":     "--nopfs",
		"benchmarks/plots":     "plots",
		"benchmarks/simulator": "the simulations",
		"cmd/internal/exit":    "wrong options",
		"scheduler/draw":       "names of samplers",
		"scheduler/protocol":   "names of scorers",
		"scheduler/systems":    "the systems and their options",
		"staging/sizes":        "--tiers",
	},
	"cmd/rankpool/internal/summary": {
		"cmd/rankpool/internal/rank": "what kind of file a run log is",
		"cmd/internal/runlog":        "a table is made of a run log",
		"mpicache/stats":             "the counters, and their headings",
	},
	"cmd/rankpool/internal/top": {
		"cmd/rankpool/internal/control": "asks a door",
		"cmd/internal/exit":             "ended by a signal, or used wrongly",
		"cmd/rankpool/internal/session": "finds the cache's folder",
		"slurm":                         "the job to look at",
		"mpicache/door":                 "the frames of a door",
		"mpicache/stats":                "a rank's statistics",
	},
	"cmd/rankpool/internal/world": {
		"cmd/internal/exit":              "a wrong launch ends the command",
		"cmd/rankpool/internal/messages": "warnings",
		"mpicache/transport":             "joins the tasks",
		"mpicache/transport/mpilib":      "which library",
		"slurm":                          "the job",
	},
	"benchmarks": {all: "it measures everything"},
	"benchmarks/nopfs": {
		"scheduler/draw":    "the shuffle",
		"scheduler/systems": "NoPFS's performance model",
	},
	"benchmarks/planning": {
		"scheduler/draw": "samplers",
		"scheduler/plan": "the plans that it measures",
	},
	"benchmarks/slowfs": {"staging/sizes": "sizes in its settings"},
	"benchmarks/simulator": {
		"benchmarks/clusters": "recorded embeddings",
		"scheduler/draw":      "the code that ranks run",
		"scheduler/plan":      "the same",
		"scheduler/protocol":  "the same",
		"scheduler/stager":    "the same",
		"scheduler/systems":   "the systems that it compares",
		"staging/npy":         "recorded losses",
	},
}

// inTests lists what only the tests of a package may import in addition.
var inTests = map[string]map[string]string{
	"scheduler/systems": {
		"scheduler/schedulertest": "recorded losses",
	},
	"scheduler/stager": {
		"scheduler/protocol":      "ranks of both",
		"scheduler/schedulertest": "recorded losses",
	},
	"scheduler/protocol": {
		"scheduler/schedulertest": "recorded losses",
	},
	"scheduler/plan": {
		"scheduler/schedulertest": "recorded losses",
	},
	"scheduler/draw": {
		"scheduler/schedulertest": "recorded losses",
	},
	"cmd/rankpool": {
		"cmd/internal/program/programtest": "commands of scripts",
		"nvml/nvmltest":                    "a false driver",
	},
	"cmd/rankpool-lab":              {"cmd/internal/program/programtest": "commands of scripts"},
	"cmd/rankpool/internal/control": {"mpicache/door/doortest": "a door"},
	"cmd/rankpool/internal/top":     {"mpicache/door/doortest": "a door"},
	"mpicache": {
		"mpicache/door/doortest": "the golden frames",
		"mpicache/fields":        "the fields of frames",
		"scheduler/protocol":     "what a training is opened with",
	},
	"mpicache/door":       {"mpicache/door/doortest": "the golden frames"},
	"cmd/internal/report": {"cmd/internal/runlog/runlogtest": "logs to report"},
	"cmd/internal/runlog": {"cmd/internal/runlog/runlogtest": "a log to read"},
	"mpicache/transport": {
		"mpicache/transport/mpi/mpitest": "a false MPI",
	},
	"mpicache/transport/mpi": {"mpicache/transport/mpi/mpitest": "a false MPI"},
	"nvml":                   {"nvml/nvmltest": "a false driver"},
	"staging/dataset":        {"staging/stagingtest": "trees of files"},
	"staging/pack": {
		"mpicache/transport":  "ranks in one process",
		"staging/stagingtest": "how errors are checked",
	},
	"staging/index":   {"staging/stagingtest": "trees of files"},
	"staging/storage": {"staging/stagingtest": "trees of files"},
}

// all stands for every package except the programs, which no package may import.
const all = "*"

var programs = []string{"cmd/rankpool", "cmd/rankpool-lab"}

// pure lists the packages that only decide. pureImports lists the foreign packages that they may
// import: none gives access to a clock, file, lock or random number. pureUses limits what they may
// use of those that have more.
var (
	pure = []string{
		"scheduler/draw", "scheduler/plan", "scheduler/stager", "scheduler/protocol",
		"scheduler/systems", "scheduler/systems/hnsw",
	}
	pureImports = []string{
		"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "encoding/json",
		"errors", "fmt",
		"hash/crc32", "iter", "maps", "math", "math/bits", "reflect", "slices", "sort", "strconv",
		"strings", "time",
		"github.com/agext/levenshtein", "github.com/zeebo/xxh3",
	}
	pureUses = map[string][]string{
		"reflect": {"DeepEqual"},
		"time":    {"Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"},
	}
)

// notOurs matches the folders that hold no package of ours.
var notOurs = regexp.MustCompile(`^(\..*|testdata|vendor|build|bin)$`)

// source is a Go file of the repository.
type source struct {
	path, pkg string
	test      bool
	syntax    *ast.File
}

// sources parses the repository's Go files, whatever system or tag they are for.
func sources(t *testing.T) []source {
	t.Helper()
	var found []source
	err := filepath.WalkDir("..", func(name string, entry fs.DirEntry, err error) error {
		name = filepath.ToSlash(name)
		if err != nil {
			return err
		}
		if entry.IsDir() && name != ".." && notOurs.MatchString(path.Base(name)) {
			return fs.SkipDir
		}
		if entry.IsDir() || path.Ext(name) != ".go" {
			return nil
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "../")
		found = append(found, source{name, path.Dir(name), strings.HasSuffix(name, "_test.go"), syntax})
		return nil
	})
	if err != nil || len(found) < 100 {
		t.Fatalf("%d Go files: %v", len(found), err)
	}
	return found
}

// imports returns the import paths of a file.
func (s source) imports() []string {
	var paths []string
	for _, one := range s.syntax.Imports {
		name, _ := strconv.Unquote(one.Path.Value)
		paths = append(paths, name)
	}
	return paths
}

// ours returns the folder of a package of ours, "" for any other package.
func ours(importPath string) string {
	folder, _ := strings.CutPrefix(importPath, module+"/")
	if folder == importPath {
		return ""
	}
	return folder
}

func TestImportsAreThoseAllowed(t *testing.T) {
	type arrow struct{ from, to string }
	used := map[arrow]bool{}
	for _, file := range sources(t) {
		for _, name := range file.imports() {
			if name == "C" && file.pkg != "mpicache/transport/mpi" {
				t.Errorf("%s imports C: the calls of C are in mpicache/transport/mpi",
					file.path)
			}
			if strings.HasPrefix(name, "github.com/NVIDIA/") && !file.test {
				t.Errorf("%s imports %s, which needs cgo: it is for tests alone", file.path, name)
			}
			to := ours(name)
			if to == "" || to == file.pkg {
				continue
			}
			_, allowed := arrows[file.pkg][to]
			_, anything := arrows[file.pkg][all]
			anything = anything && !slices.Contains(programs, to)
			_, forTests := inTests[file.pkg][to]
			used[arrow{file.pkg, to}] = true
			forTests = forTests && file.test
			if !allowed && !anything && !forTests {
				t.Errorf(
					"%s imports %s, and may not: do without it, or add the arrow to the table in "+
						"docs/imports_test.go", file.path, to)
			}
		}
	}
	for _, table := range []map[string]map[string]string{arrows, inTests} {
		for from, tos := range table {
			for to, why := range tos {
				if to != all && !used[arrow{from, to}] {
					t.Errorf("%s may import %s (%s), and does not: take it off the table", from, to,
						why)
				}
			}
		}
	}
}

// TestProductImportsNoLaboratory checks that what sites install, and its tests, do without what
// measures and compares it.
func TestProductImportsNoLaboratory(t *testing.T) {
	laboratory := regexp.MustCompile(`^(benchmarks|cmd/rankpool-lab)(/|$)`)
	for _, file := range sources(t) {
		for _, name := range file.imports() {
			if laboratory.MatchString(ours(name)) && !laboratory.MatchString(file.pkg) {
				t.Errorf("%s imports %s, which is for rankpool-lab and bin/benchmarks alone", file.path,
					name)
			}
		}
	}
}

func TestSchedulerIsPure(t *testing.T) {
	for _, file := range sources(t) {
		if file.test || !slices.Contains(pure, file.pkg) {
			continue
		}
		for _, name := range file.imports() {
			if ours(name) == "" && !slices.Contains(pureImports, name) {
				t.Errorf("%s imports %s: %s only decides, and has no clock, file, lock or random "+
					"number "+
					"of its own", file.path, name, file.pkg)
			}
		}
		ast.Inspect(file.syntax, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType:
				t.Errorf("%s has a goroutine or a channel: %s has one caller", file.path, file.pkg)
			case *ast.SelectorExpr:
				of, ok := node.X.(*ast.Ident)
				if !ok {
					break
				}
				if uses, partly := pureUses[of.Name]; partly &&
					!slices.Contains(uses, node.Sel.Name) {
					t.Errorf("%s uses %s.%s: %s only decides", file.path, of.Name, node.Sel.Name,
						file.pkg)
				}
			}
			return true
		})
	}
}
