// Package launchers knows commands that start others: PyTorch's launchers, which start the training
// processes of a node, the programs that start the tasks of a job, and wrappers. It is pure: it
// examines words.
package launchers

import (
	"path"
	"slices"
	"strings"
)

// modules are the launchers that python -m runs.
var modules = map[string]string{
	"torch.distributed.run":      "torchrun",
	"torch.distributed.launch":   "torchrun",
	"accelerate.commands.launch": "accelerate",
	"deepspeed.launcher.runner":  "deepspeed",
}

// subcommands are those that launch, of programs that do other things too.
var subcommands = map[string]string{
	"accelerate": "launch", "colossalai": "run", "fabric": "run", "lightning": "run", "tune": "run",
}

// Of returns the launcher that a training command calls and that starts all training processes of a
// node itself, such as "torchrun", "accelerate", "deepspeed" or "composer", even if python or a
// container runs it; "" for any other command. Arguments of other programs and the text of a shell
// do not count.
func Of(command []string) string {
	command = Unwrap(command)
	if len(command) == 0 {
		return ""
	}
	program, arguments := command[0], command[1:]
	if IsPython(program) {
		var module bool
		if program, arguments, module = script(arguments); module {
			return modules[program]
		}
	}
	return named(program, arguments)
}

// named returns the launcher that a program is, "" if it is none.
func named(program string, arguments []string) string {
	switch name := strings.TrimSuffix(path.Base(program), ".py"); name {
	case "torchrun", "composer", "deepspeed", "horovodrun":
		return name
	case "accelerate-launch":
		return "accelerate"
	default:
		launches, known := subcommands[name]
		if known && len(arguments) > 0 && arguments[0] == launches {
			return name
		}
	}
	return ""
}

// IsPython reports whether a program is a Python interpreter, of any version and in any folder.
func IsPython(program string) bool {
	version, found := strings.CutPrefix(path.Base(program), "python")
	return found && strings.Trim(version, "0123456789.") == ""
}

// script returns the script or module in the arguments of python, and what follows it.
//
// Source: Python, python(1): -c, -m, -W and -X take a value, alone or after other letters.
func script(arguments []string) (name string, rest []string, module bool) {
	for i := 0; i < len(arguments); i++ {
		word := arguments[i]
		at := strings.IndexAny(word, "cmWX")
		switch {
		case len(word) < 2 || word[0] != '-':
			return word, arguments[i+1:], false
		case strings.HasPrefix(word, "--") || at < 0:
		case word[at] == 'c':
			return "", nil, false
		case word[at] == 'm' && at+1 < len(word):
			return word[at+1:], arguments[i+1:], true
		case word[at] == 'm' && i+1 < len(arguments):
			return arguments[i+1], arguments[i+2:], true
		case at+1 == len(word):
			i++ // the value of -W or -X
		}
	}
	return "", nil, false
}

// StartsTasks reports whether a program starts the tasks of a job, or a job: srun, mpirun and the
// like.
func StartsTasks(program string) bool {
	return slices.Contains([]string{"srun", "mpirun", "mpiexec", "prun", "aprun", "sbatch", "salloc"},
		path.Base(program))
}
