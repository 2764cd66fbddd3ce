package launchers

import (
	"path"
	"slices"
	"strings"
)

// Unwrap returns the part of a command that runs inside containers, env, numactl, uv and other
// wrappers: its words from the first that is a shell or a script, or that is a launcher or Python
// and has a script or module. It returns a command unchanged if there is no such word.
func Unwrap(command []string) []string {
	for i, word := range command {
		inner := command[i:]
		if runsText(word) || starts(inner) && slices.ContainsFunc(inner[1:], isScript) {
			return inner
		}
	}
	return command
}

// starts reports whether a command is that of a launcher or of Python. An environment or an image,
// which a launcher or Python follows, may have the name of a launcher.
func starts(command []string) bool {
	if IsPython(command[0]) {
		return true
	}
	return named(command[0], command[1:]) != "" && (len(command) == 1 || !starts(command[1:]))
}

// isScript reports whether a word names what Python runs.
func isScript(word string) bool {
	return strings.HasSuffix(word, ".py") || word == "-m" || word == "--module"
}

// runsText reports whether a program is a shell or a script.
func runsText(program string) bool {
	name := path.Base(program)
	return slices.Contains(strings.Fields("sh bash dash zsh ksh fish csh tcsh"), name) ||
		strings.HasSuffix(name, ".sh") || strings.HasSuffix(name, ".py")
}
