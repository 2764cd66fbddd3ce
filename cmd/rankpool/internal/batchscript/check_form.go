package batchscript

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/launchers"
)

// checkDirectives looks for lines that sbatch does not read as they are meant.
func (j *job) checkDirectives() {
	for _, m := range j.malformed {
		j.warn(m.number, fmt.Sprintf("sbatch finds no option in %q", m.text),
			"write #SBATCH --name=value at the beginning of the line, in capitals")
	}
	for _, l := range j.late {
		j.warn(l.number, fmt.Sprintf("sbatch does not read #%s here, because a command stands "+
			"before it", l.text), "move the line up, before the first command")
	}
	for _, o := range j.directives {
		if strings.Contains(o.value, "$") {
			j.warn(o.line, fmt.Sprintf("sbatch does not replace variables, so --%s is literally %q", o.name,
				o.value),
				"write the value itself, or in names of files %j (job) and %a (array task)")
		}
	}
	_, array := j.directive("array")
	if output, found := j.directive("output"); array && found && !strings.Contains(output.value, "%") {
		j.warn(output.line, "all tasks of the array write --output="+output.value,
			"put %A_%a into its name")
	}
}

// checkSyntax looks for text that is not bash. The checks of commands need bash.
func (j *job) checkSyntax() {
	isShell := slices.ContainsFunc(strings.Fields(strings.TrimPrefix(j.shebang, "#!")),
		func(word string) bool { return slices.Contains([]string{"bash", "sh"}, path.Base(word)) })
	if j.syntax != nil && isShell {
		at, _ := errors.AsType[syntax.ParseError](j.syntax) // else it is at the first line
		j.warn(int(at.Pos.Line()), "this is not bash: "+cmp.Or(at.Text, j.syntax.Error()),
			"try \"bash -n SCRIPT\"; the commands were not checked")
	}
	for i, c := range j.commands[:max(0, len(j.commands)-1)] {
		if c.cut && strings.HasPrefix(j.commands[i+1].words[0], "-") {
			j.warn(c.line, "this command ends at a backslash that is followed by a blank",
				"remove the blanks at the end of its lines")
		}
	}
}

// checkVariables looks for variables that only training processes have.
func (j *job) checkVariables() {
	for _, name := range []string{"MASTER_ADDR", "MASTER_PORT"} {
		i := slices.IndexFunc(j.uses, func(use line) bool { return use.text == name })
		if i >= 0 && !j.assigned[name] {
			j.warn(j.uses[i].number, name+" is not set in the batch script, only in training processes",
				"use it within sh -c '…', or set it")
		}
	}
}

// checkCalls looks for calls that rankpool refuses at once, on every node.
func (j *job) checkCalls() {
	for _, s := range j.steps {
		switch {
		case s.tool == "":
		case s.flags == nil:
			j.warn(s.line, "rankpool has no command "+s.tool, "see \"rankpool --help\"")
		case s.flag("help") != "":
		case s.wrong != nil:
			j.warn(s.line, fmt.Sprintf("rankpool %s: %v%s", s.tool, s.wrong,
				program.MeantFlag(j.facts.Flags(s.tool), s.wrong)), "see \"rankpool "+s.tool+" --help\"")
		default:
			j.checkCall(s)
		}
	}
}

// checkCall looks for missing and superfluous arguments of a subcommand. Flags may be in variables,
// whose values the text does not show.
func (j *job) checkCall(s *step) {
	command := s.training()
	if needs := []string{"run", "stage", "pack"}; slices.Contains(needs, s.tool) &&
		s.flag("data") == "" && !mayBeFlags(command) {
		j.warn(s.line, fmt.Sprintf("rankpool %s has no --data", s.tool),
			"name the data set with --data DIR or --data MANIFEST")
	}
	switch {
	case !slices.Contains([]string{"run", "join"}, s.tool):
	case len(command) == 0:
		j.warn(s.line, fmt.Sprintf("rankpool %s has no training command", s.tool),
			"write it behind --, as in: -- python train.py")
	case s.tool == "run" && s.launcher == "" && launchers.StartsTasks(command[0]):
		j.warn(s.line, "rankpool run starts the training command by srun itself, and refuses one that "+
			"begins with "+path.Base(command[0]),
			"leave "+path.Base(command[0])+" out; its options belong in #SBATCH lines")
	case s.tool == "run" && s.launcher == "" && s.inside != "" && s.flag("ranks") == "":
		j.warn(s.line, "rankpool run needs srun, which a container does not have",
			"write rankpool run … -- "+s.inside+" exec IMAGE python train.py, or --ranks 1 on one node")
	}
}
