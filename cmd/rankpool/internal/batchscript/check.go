package batchscript

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// A Warning describes one thing that will go wrong.
type Warning struct {
	Line   int    `json:"line"`    // where, from 1
	Check  string `json:"check"`   // the check's name, one of Checks
	What   string `json:"warning"` // what is wrong
	Advice string `json:"advice"`  // what to do
}

// Facts is what Check needs to know besides the script. All fields are required.
type Facts struct {
	// how srun starts ranks with this machine's MPI library: pmix, pmi2; "" if it has none
	MPI         string
	Subcommands []string // of rankpool
	// of a subcommand; nil if there is no such subcommand
	Flags  func(subcommand string) *pflag.FlagSet
	Exists func(path string) bool // reports whether a file or folder exists
	// parses --memory; 0 for shares and auto, an error for what run refuses
	Size func(memory string) (bytes int64, err error)
}

// A job is what the checks examine.
type job struct {
	script   *Script
	request  request
	steps    []*step
	assigned map[string]bool // variables that the script sets
	facts    Facts
	found    []Warning
	check    string // the name of the current check
}

// warn records a warning of the current check.
func (j *job) warn(line int, what, advice string) {
	j.found = append(j.found, Warning{max(1, line), j.check, what, advice})
}

// checks are all checks, by name.
var checks = []struct {
	name string
	run  func(*job)
}{
	{"line-ends", (*job).checkLineEnds},
	{"shebang", (*job).checkShebang},
	{"syntax", (*job).checkSyntax},
	{"late-directive", (*job).checkLateDirectives},
	{"directive", (*job).checkDirectives},
	{"directive-variable", (*job).checkDirectiveVariables},
	{"slurm-variable", (*job).checkVariables},
	{"time", (*job).checkTime},
	{"errexit", (*job).checkErrexit},
	{"flag", (*job).checkFlags},
	{"refused", (*job).checkRefused},
	{"mpi", (*job).checkMPI},
	{"ranks-per-node", (*job).checkRanksPerNode},
	{"trainers-per-node", (*job).checkTrainersPerNode},
	{"rendezvous", (*job).checkRendezvous},
	{"join", (*job).checkJoin},
	{"overlap", (*job).checkOverlap},
	{"cache-gpus", (*job).checkCacheGPUs},
	{"cpus-per-task", (*job).checkCPUs},
	{"binding", (*job).checkBinding},
	{"kill-on-bad-exit", (*job).checkKillOnBadExit},
	{"wait", (*job).checkWait},
	{"after-exec", (*job).checkAfterExec},
	{"signal", (*job).checkSignal},
	{"requeue", (*job).checkRequeue},
	{"memory", (*job).checkMemory},
	{"data", (*job).checkData},
	{"lost-file", (*job).checkLostFiles},
	{"array-file", (*job).checkArrayFiles},
}

// Check returns what will go wrong when the script is submitted, in line order. A warning may be
// wrong if the script does something that its text does not show; a script without warnings may
// still fail.
func Check(script *Script, facts Facts) []Warning {
	j := &job{script: script, request: newRequest(script.Directives), facts: facts}
	j.steps = findSteps(script.Commands, facts)
	j.assigned = assignedVariables(script.Commands)
	for _, c := range checks {
		j.check = c.name
		c.run(j)
	}
	slices.SortStableFunc(j.found, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	return j.found
}

// assignedVariables returns the names of the variables that commands set.
func assignedVariables(commands []Command) map[string]bool {
	names := map[string]bool{}
	for _, c := range commands {
		words := c.Env
		if c.calls("export", "declare") {
			words = slices.Concat(words, c.Words[1:])
		}
		for _, word := range words {
			if name, _, found := strings.Cut(word, "="); found {
				names[name] = true
			}
		}
	}
	return names
}

// directive returns the last directive with a name.
func (j *job) directive(names ...string) (Option, bool) {
	return find(j.script.Directives, names...)
}

// firstLine is the line of the first directive, for warnings about a missing one.
func (j *job) firstLine() int {
	if len(j.script.Directives) > 0 {
		return j.script.Directives[0].Line
	}
	return 1
}

// calls returns the steps that are calls of one of rankpool's subcommands.
func (j *job) calls(subcommands ...string) []*step {
	return slices.DeleteFunc(slices.Clone(j.steps),
		func(s *step) bool { return !s.is(subcommands...) })
}
