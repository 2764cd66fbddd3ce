package batchscript

import (
	"fmt"
	"path"
	"strings"

	"rankpool/cmd/rankpool/internal/launchers"
)

// checkRefused looks for calls that rankpool refuses at once, on every node.
func (j *job) checkRefused() {
	for _, s := range j.steps {
		switch {
		case s.refused != "":
			advice := "see \"rankpool --help\""
			if name := near(s.refused, j.facts.Subcommands); name != "" {
				advice = "did you mean " + name + "?"
			}
			j.warn(s.Line, "rankpool has no command "+shorten(s.refused), advice)
		case s.tool == nil || len(s.tool.Unknown) > 0 || s.tool.value("help") != "":
		default:
			j.checkCall(s)
		}
	}
}

// checkCall looks for missing and superfluous arguments of a subcommand. Flags may be in variables,
// whose values the text does not show.
func (j *job) checkCall(s *step) {
	command := s.tool.Command
	if s.is("run", "serve", "stage", "pack") && s.tool.value("data") == "" && !mayBeFlags(command) {
		j.warn(s.Line, fmt.Sprintf("rankpool %s has no --data", s.tool.Subcommand),
			"name the data set with --data DIR or --data MANIFEST")
	}
	switch {
	case !s.is("run", "join"):
	case len(command) == 0:
		j.warn(s.Line, fmt.Sprintf("rankpool %s has no training command", s.tool.Subcommand),
			"write it behind --, as in: -- python train.py")
	case s.is("run") && s.launcher == "" && launchers.StartsTasks(command[0]):
		j.warn(s.Line, "rankpool run starts the training command by srun itself, and refuses one that "+
			"begins with "+path.Base(command[0]),
			"leave "+path.Base(command[0])+" out; its options belong in #SBATCH lines")
	}
}

// mayBeFlags reports whether what looks like a command may be flags that a variable holds.
func mayBeFlags(command []string) bool {
	return len(command) > 0 && strings.ContainsAny(command[0], "$`")
}
