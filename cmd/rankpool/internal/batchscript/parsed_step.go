package batchscript

import (
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/launchers"
)

// A step is a command that starts tasks, or rankpool.
type step struct {
	command
	launcher string         // srun, mpirun, or "" for the batch shell itself
	options  []option       // the launcher's
	inside   string         // the container that rankpool itself runs in, "": none
	tool     string         // rankpool's subcommand, "": another program
	flags    *pflag.FlagSet // rankpool's, all of them strings; nil: it has no such subcommand
	wrong    error          // why rankpool refuses them
}

// flag returns the last value of a flag of rankpool, "" if it is not given.
func (s *step) flag(name string) string {
	f := s.flags.Lookup(name)
	if f == nil {
		return ""
	}
	return f.Value.String()
}

// training returns the training command of run and join.
func (s *step) training() []string { return s.flags.Args() }

// findSteps returns the commands that start something that matters here.
func findSteps(commands []command, facts Facts) []*step {
	var steps []*step
	for _, c := range commands {
		words := c.words
		for len(words) > 1 && slices.Contains([]string{"exec", "nohup", "env", "time"}, words[0]) {
			words = words[1:]
		}
		s := &step{command: c}
		if name := path.Base(words[0]); launchers.StartsTasks(name) && name != "sbatch" {
			s.launcher = name
		}
		s.read(words, facts)
		if s.launcher+s.tool != "" {
			steps = append(steps, s)
		}
	}
	return steps
}

// read finds rankpool and a subcommand among words: srun with its options and other programs, such
// as a container's, may precede it.
func (s *step) read(words []string, facts Facts) {
	before := words
	for i := range len(words) - 1 {
		if path.Base(words[i]) != "rankpool" {
			continue
		}
		before = words[:i]
		if flags := facts.Flags(words[i+1]); flags != nil {
			s.tool = words[i+1]
			s.readFlags(words[i+2:], flags)
			break
		}
		if i == 0 && !mayBeFlags(words[1:]) {
			s.tool = words[1]
		}
	}
	if s.launcher != "" {
		s.options = parseOptions(before, s.line)
	}
	for _, word := range before {
		if slices.Contains(containers, path.Base(word)) {
			s.inside = path.Base(word)
		}
	}
}

// containers are the programs that run another one in a container.
var containers = []string{"apptainer", "singularity", "shifter", "podman-hpc", "ch-run", "enroot"}

// mayBeFlags reports whether a word may be flags that a variable holds, or is one.
func mayBeFlags(words []string) bool {
	return len(words) > 0 && (strings.ContainsAny(words[0], "$`") || strings.HasPrefix(words[0], "-"))
}

// readFlags parses the flags of a subcommand, up to the training command. All values count as text,
// since they may be variables.
func (s *step) readFlags(words []string, known *pflag.FlagSet) {
	s.flags = pflag.NewFlagSet(s.tool, pflag.ContinueOnError)
	s.flags.SetInterspersed(false)
	s.flags.Usage = func() {}
	known.VisitAll(func(f *pflag.Flag) {
		s.flags.StringP(f.Name, f.Shorthand, "", "")
		s.flags.Lookup(f.Name).NoOptDefVal = f.NoOptDefVal
	})
	s.wrong = s.flags.Parse(words)
}
