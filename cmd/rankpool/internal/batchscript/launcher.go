package batchscript

import (
	"path"
	"slices"
	"strings"

	"rankpool/cmd/rankpool/internal/launchers"
)

// launcherOf returns the launcher with which a command, or the text of its sh -c, starts all
// training processes of a node, and the words of its command; "" if there is none.
func launcherOf(command []string) (name string, call []string) {
	if name = launchers.Of(command); name != "" {
		return name, command
	}
	inner, err := readShell(shellText(command))
	if err != nil {
		return "", nil
	}
	for _, c := range inner.commands {
		if name = launchers.Of(c.words); name != "" {
			return name, c.words
		}
	}
	return "", nil
}

// shellText returns the text that a shell runs, as in sh -c TEXT, "" if there is none.
func shellText(command []string) string {
	command = launchers.Unwrap(command)
	if !opaque(command) {
		return ""
	}
	for i, word := range command[1:] {
		isOption := strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--")
		if isOption && strings.Contains(word, "c") && i+2 < len(command) {
			return command[i+2]
		}
		if !isOption && !strings.HasSuffix(command[i], "o") { // -o pipefail
			break
		}
	}
	return ""
}

// opaque reports whether a training command is a shell or a shell script, which may do anything.
func opaque(command []string) bool {
	if len(command) == 0 {
		return false
	}
	name := path.Base(command[0])
	return slices.Contains([]string{"sh", "bash", "dash", "zsh"}, name) ||
		strings.HasSuffix(name, ".sh")
}
