package batchscript

import (
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/launchers"
)

// A Tool is a call of rankpool in a command.
type Tool struct {
	Subcommand string
	Flags      map[string][]string // values by long name; "true" for a flag without one
	Unknown    []string            // flags that the subcommand does not have
	Command    []string            // of run and join: the training command
}

// value returns the last value of a flag, "" if it is not given.
func (t *Tool) value(flag string) string {
	if t == nil || len(t.Flags[flag]) == 0 {
		return ""
	}
	return t.Flags[flag][len(t.Flags[flag])-1]
}

// A step is a command that starts tasks, or rankpool.
type step struct {
	Command
	at       int      // its index among the commands
	launcher string   // srun, mpirun, or "" for the batch shell itself
	options  []Option // srun's
	program  []string // including its arguments
	exec     bool     // it replaces the shell
	tool     *Tool    // nil: another program
	refused  string   // the invalid word in the place of rankpool's subcommand
}

// is reports whether the step is a call of one of rankpool's subcommands.
func (s *step) is(subcommands ...string) bool {
	return s.tool != nil && slices.Contains(subcommands, s.tool.Subcommand)
}

// title names the step in a sentence.
func (s *step) title() string {
	name := strings.Join(s.program[:min(len(s.program), 2)], " ")
	if s.tool != nil {
		name = "rankpool " + s.tool.Subcommand
	}
	if s.launcher != "" {
		name = s.launcher + " … " + name
	}
	return "\"" + name + "\""
}

// maxSteps bounds what the checks compare with each other; a script has a few.
const maxSteps = 256

// findSteps returns the commands that start something that matters here.
func findSteps(commands []Command, facts Facts) []*step {
	var steps []*step
	for i, c := range commands {
		if len(steps) == maxSteps {
			break
		}
		s := &step{Command: c, at: i, program: c.Words}
		s.unwrap()
		if len(s.program) == 0 {
			continue
		}
		switch name := path.Base(s.program[0]); name {
		case "srun":
			s.launcher = "srun"
			s.options, s.program = parseOptions(s.program[1:], c.Line, srunTable)
		case "mpirun", "mpiexec", "orterun":
			s.launcher = name
		}
		s.tool = findTool(s.program, facts)
		if s.tool == nil {
			s.refused = noSubcommand(s.program)
		}
		if s.launcher != "" || s.tool != nil || s.refused != "" {
			steps = append(steps, s)
		}
	}
	return steps
}

// unwrap strips the commands that only run another one.
func (s *step) unwrap() {
	for len(s.program) > 1 {
		switch s.program[0] {
		case "exec":
			s.exec = true
		case "nohup", "command", "env", "time":
		default:
			if !isAssignment(s.program[0]) {
				return
			}
			s.Env = append(s.Env, s.program[0])
		}
		s.program = s.program[1:]
	}
}

// findTool finds rankpool and a subcommand among words: other programs (a container's) may precede
// it.
func findTool(words []string, facts Facts) *Tool {
	for i := range len(words) - 1 {
		if path.Base(words[i]) != "rankpool" {
			continue
		}
		if flags := facts.Flags(words[i+1]); flags != nil {
			t := &Tool{Subcommand: words[i+1], Flags: map[string][]string{}}
			t.read(words[i+2:], flags)
			return t
		}
	}
	return nil
}

// noSubcommand returns the word after rankpool in a call of it, where a subcommand belongs; "" if
// the command is not such a call.
func noSubcommand(words []string) string {
	words = launchers.Unwrap(words)
	if len(words) < 2 || path.Base(words[0]) != "rankpool" || strings.HasPrefix(words[1], "-") ||
		strings.ContainsAny(words[1], "$`") {
		return ""
	}
	return words[1]
}

// read parses the flags of a subcommand, up to the training command. It assumes that unknown flags
// take no value.
func (t *Tool) read(words []string, flags *pflag.FlagSet) {
	for len(words) > 0 {
		word := words[0]
		if word == "--" || len(word) < 2 || word[0] != '-' {
			if word == "--" {
				words = words[1:]
			}
			t.Command = words
			return
		}
		words = words[1:]
		name, value, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		flag := flags.Lookup(name)
		if !strings.HasPrefix(word, "--") {
			if flag = flags.ShorthandLookup(word[1:2]); len(word) > 2 {
				value, hasValue = strings.TrimPrefix(word[2:], "="), true
			}
		}
		switch {
		case flag == nil:
			t.Unknown = append(t.Unknown, strings.SplitN(word, "=", 2)[0])
			continue
		case hasValue:
		case flag.NoOptDefVal != "":
			value = flag.NoOptDefVal
		case len(words) > 0:
			value, words = words[0], words[1:]
		}
		t.Flags[flag.Name] = append(t.Flags[flag.Name], value)
	}
}
