package batchscript

import (
	"cmp"
	"slices"

	"github.com/spf13/pflag"
)

// A Warning describes one thing that will go wrong.
type Warning struct {
	Line   int    `json:"line"`    // where, from 1
	Check  string `json:"check"`   // the check's name, one of checks
	What   string `json:"warning"` // what is wrong
	Advice string `json:"advice"`  // what to do
}

// Facts is what Check needs to know besides the script. All fields are required.
type Facts struct {
	// how srun starts ranks with this machine's MPI library: pmix, pmi2; "" if it has none
	MPI string
	// of a subcommand; nil if there is no such subcommand
	Flags func(subcommand string) *pflag.FlagSet
	// parses --memory; 0 for shares and auto, an error for what run refuses
	Size func(memory string) (bytes int64, err error)
}

// A job is what the checks examine.
type job struct {
	*Script
	request request
	steps   []*step
	facts   Facts
	found   []Warning
	check   string // the name of the current check
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
	{"directive", (*job).checkDirectives},
	{"syntax", (*job).checkSyntax},
	{"variable", (*job).checkVariables},
	{"call", (*job).checkCalls},
	{"memory", (*job).checkMemory},
	{"mpi", (*job).checkMPI},
	{"tasks", (*job).checkTasks},
	{"signal", (*job).checkSignal},
}

// Check returns what will go wrong when the script is submitted, in line order. A warning may be
// wrong if the script does something that its text does not show; a script without warnings may
// still fail.
func Check(script *Script, facts Facts) []Warning {
	j := &job{Script: script, request: newRequest(script.directives), facts: facts}
	j.steps = findSteps(script.commands, facts)
	for _, c := range checks {
		j.check = c.name
		c.run(j)
	}
	slices.SortStableFunc(j.found, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	return j.found
}

// directive returns the last directive with a name.
func (j *job) directive(names ...string) (option, bool) { return find(j.directives, names...) }

// calls returns the steps that are calls of one of rankpool's subcommands.
func (j *job) calls(subcommands ...string) []*step {
	return slices.DeleteFunc(slices.Clone(j.steps),
		func(s *step) bool { return !slices.Contains(subcommands, s.tool) })
}
