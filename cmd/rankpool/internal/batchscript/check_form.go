package batchscript

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

func (j *job) checkLineEnds() {
	if j.script.dosLine > 0 {
		j.warn(j.script.dosLine, "the line ends in a carriage return, as on Windows, and sbatch "+
			"refuses such a script",
			"convert it with: sed -i 's/\\r$//' SCRIPT")
	}
}

func (j *job) checkShebang() {
	if j.script.shebang == "" {
		j.warn(1, "the script does not begin with #!, and sbatch refuses it",
			"write #!/bin/bash in the first line")
	}
}

// checkSyntax looks for text that is not bash; the other checks read nothing after it.
func (j *job) checkSyntax() {
	if j.script.syntax == nil || !inBash(j.script.shebang) {
		return
	}
	line, text := syntaxError(j.script.syntax)
	j.warn(line, "this is not bash: "+shorten(text),
		"try \"bash -n SCRIPT\"; nothing from here on was checked")
}

// inBash reports whether the first line of a script names bash or sh; without one it may be either.
func inBash(shebang string) bool {
	words := strings.Fields(strings.TrimPrefix(shebang, "#!"))
	return slices.ContainsFunc(words, func(word string) bool {
		return slices.Contains([]string{"bash", "sh"}, path.Base(word))
	})
}

func (j *job) checkLateDirectives() {
	last := 0
	for _, o := range j.script.Late {
		if o.Line != last {
			j.warn(o.Line, fmt.Sprintf("sbatch does not read #SBATCH --%s here, because a command "+
				"stands before it", o.Name),
				"move the line up, before the first command")
		}
		last = o.Line
	}
}

// checkDirectives looks for options that sbatch does not have. Sites add their own, so it reports
// only what looks misspelt.
func (j *job) checkDirectives() {
	for _, m := range j.script.malformed {
		j.warn(m.number, fmt.Sprintf("sbatch takes %q for a comment", shorten(m.text)),
			"begin the line with \"#SBATCH \", in capitals")
	}
	for _, m := range j.script.stray {
		j.warn(m.number, fmt.Sprintf("%q is not an option, and sbatch reads nothing behind it on this "+
			"line", shorten(m.text)), "write options as --name=value")
	}
	for _, o := range j.script.Directives {
		if name := near(o.Name, sbatchTable.names); o.unknown && len(o.Name) > 2 && name != "" {
			j.warn(o.Line, fmt.Sprintf("sbatch has no option --%s", shorten(o.Name)),
				"did you mean --"+name+"?")
		}
	}
}

func (j *job) checkDirectiveVariables() {
	for _, o := range j.script.Directives {
		if strings.Contains(o.Value, "$") {
			j.warn(o.Line, fmt.Sprintf("sbatch does not replace variables, so --%s is literally %q", o.Name,
				shorten(o.Value)),
				"write the value itself, or in names of files %j (job) and %a (array task)")
		}
	}
}

var useOfVariable = regexp.MustCompile(`\$\{?(S(?:LURM|RUN|BATCH)_[A-Z0-9_]+)`)

// maxVariables bounds the unknown variables that are checked.
const maxVariables = 1000

// checkVariables looks for misspelt variables of Slurm.
func (j *job) checkVariables() {
	seen := map[string]bool{}
	for i, text := range j.script.lines {
		if strings.HasPrefix(strings.TrimSpace(text), "#") {
			continue
		}
		for _, match := range useOfVariable.FindAllStringSubmatch(text, -1) {
			name := match[1]
			if seen[name] || len(seen) > maxVariables || slices.Contains(slurmVariables, name) {
				continue
			}
			seen[name] = true
			if meant := near(name, slurmVariables); meant != "" && !j.assigned[name] {
				j.warn(i+1, "Slurm sets no variable "+shorten(name), "did you mean "+meant+"?")
			}
		}
	}
}

func (j *job) checkTime() {
	o, found := j.directive("time")
	_, isTime := timeSeconds(o.Value)
	switch {
	case !found:
		j.warn(j.firstLine(), "no --time: the partition's default counts, often an hour or less, or "+
			"sbatch refuses the job",
			"add #SBATCH --time=HH:MM:SS")
	case !isTime && !strings.EqualFold(o.Value, "unlimited") &&
		!strings.EqualFold(o.Value, "infinite"):
		j.warn(o.Line, fmt.Sprintf("--time=%s is not a time", shorten(o.Value)),
			"write minutes, HH:MM:SS or D-HH:MM:SS")
	}
}

// harmless are commands whose failure changes nothing for what follows.
var harmless = []string{
	"echo", "printf", "set", "trap", "export", "wait", "date", "hostname", "true", ":", "exit", "kill",
	"unset", "ulimit", "nvidia-smi",
}

// checkErrexit looks for preparations whose failure would go unnoticed.
func (j *job) checkErrexit() {
	if len(j.steps) == 0 || strings.Contains(j.script.shebang, " -e") {
		return
	}
	last := j.steps[len(j.steps)-1].Line
	for i, c := range j.script.Commands {
		switch {
		case c.Line >= last:
			return
		case len(c.Words) == 0 || c.Guarded || c.Background ||
			c.calls(harmless...) && !setsErrexit(c):
			continue
		case c.function || i+1 < len(j.script.Commands) && j.script.Commands[i+1].asksStatus():
			continue
		case setsErrexit(c):
			return
		}
		j.warn(c.Line, fmt.Sprintf("when %q fails, the script continues without it",
			shorten(strings.Join(c.Words, " "))),
			"write \"set -e\" above it (set -euo pipefail catches more)")
		return
	}
}

// setsErrexit reports whether a command is set -e, set -euo pipefail, set -o errexit.
func setsErrexit(c Command) bool {
	return c.calls("set") && slices.ContainsFunc(c.Words[1:], func(word string) bool {
		return word == "errexit" || strings.HasPrefix(word, "-") && strings.Contains(word, "e")
	})
}

// checkFlags looks for flags that rankpool does not have.
func (j *job) checkFlags() {
	for _, s := range j.steps {
		if s.tool == nil {
			continue
		}
		for _, flag := range s.tool.Unknown {
			var names []string
			j.facts.Flags(s.tool.Subcommand).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
			advice := fmt.Sprintf("see \"rankpool %s --help\"", s.tool.Subcommand)
			if name := near(strings.TrimLeft(flag, "-"), names); name != "" && len(flag) > 4 {
				advice = "did you mean --" + name + "?"
			}
			j.warn(s.Line, fmt.Sprintf("rankpool %s has no flag %s", s.tool.Subcommand, shorten(flag)),
				advice)
		}
	}
}

// shorten truncates a text of the script for use in a sentence.
func shorten(text string) string {
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return text
}
