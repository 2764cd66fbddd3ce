package launchers

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// A wrapper is a program that runs the command that follows its own words.
type wrapper struct {
	verbs  []string // one of them comes first; if there are none, nothing does
	valued []string // its options whose value is a separate word
	words  int      // how many words (a container's image) precede the command
}

// The options of apptainer with a value, which singularity has too.
//
// Source: Apptainer 1.3, apptainer exec --help.
var apptainer = wrapper{
	verbs: []string{"exec", "run"}, words: 1,
	valued: strings.Fields(`--add-caps --app --apply-cgroups -B --bind --blkio-weight --cpu-shares
		--cpus --cpuset-cpus --cwd --dns --drop-caps --env --env-file --fusemount -H --home --hostname
		--memory --mount --network --network-args -o --overlay --pwd -S --scratch --security --shell -W
		--workdir`),
}

var (
	run   = []string{"run"}
	conda = wrapper{verbs: run, valued: strings.Fields("-n --name -p --prefix --cwd")}
)

// wrappers are programs that may precede a training command, for which unknown does not do: an
// environment or an image may have the name of a launcher.
var wrappers = map[string]wrapper{
	"apptainer":   apptainer,
	"singularity": apptainer,
	"shifter": {valued: strings.Fields("-i --image -V --volume -e --env --env-file -m --module " +
		"-w --workdir")},
	"conda":      conda,
	"mamba":      conda,
	"micromamba": conda,
	"poetry":     {verbs: run, valued: strings.Fields("-C --directory -P --project")},
	"pipenv":     {verbs: run},
	"pdm":        {verbs: run, valued: strings.Fields("-p --project")},
	"hatch":      {verbs: run, valued: strings.Fields("-e --env -p --project")},
	"pixi":       {verbs: run, valued: strings.Fields("-e --environment --manifest-path")},
	"uv": {verbs: run, valued: strings.Fields("--extra --group --with --with-editable -p --python " +
		"--env-file --project --directory")},
	"timeout": {words: 1, valued: strings.Fields("-k --kill-after -s --signal")},
	"stdbuf":  {valued: strings.Fields("-i --input -o --output -e --error")},
	"nsys": {verbs: []string{"profile"}, valued: strings.Fields("-b -c -d -e -f -o -p -s -t -w -x " +
		"-y")},
	"env":     {valued: strings.Fields("-u --unset -C --chdir")},
	"numactl": {valued: strings.Fields("-i -p -m -N -C")},
	"taskset": {words: 1},
	"nice":    {valued: strings.Fields("-n --adjustment")},
	"nohup":   {},
	"exec":    {},
	"command": {},
	"time":    {},
}

// Unwrap returns the part of a command that runs inside containers, env, numactl and the like, nil
// if there is none. It returns a command without them unchanged.
func Unwrap(command []string) []string {
	for len(command) > 0 {
		w, found := wrappers[path.Base(command[0])]
		if !found {
			return unknown(command)
		}
		rest := command[1:]
		if len(w.verbs) > 0 {
			rest = w.skipOptions(rest)
			if len(rest) == 0 || !slices.Contains(w.verbs, rest[0]) {
				return command
			}
			rest = rest[1:]
		}
		rest = w.skipOptions(rest)
		command = rest[min(w.words, len(rest)):]
	}
	return nil
}

// unknown returns what another program runs: its words from the first that is a launcher, or
// Python, and has a script or module. It returns a command unchanged if there is no such word, or
// if the program is a launcher, Python, a shell or a script, whose words are arguments, or runs
// nothing.
func unknown(command []string) []string {
	name := path.Base(command[0])
	if starts(command) || runsText(name) || name == "echo" || name == "printf" || name == "rankpool" {
		return command
	}
	for i := 1; i < len(command) && !runsText(command[i]); i++ {
		if _, wraps := wrappers[path.Base(command[i])]; !wraps && !starts(command[i:]) {
			continue
		}
		if inner := Unwrap(command[i:]); len(inner) > 0 && starts(inner) &&
			slices.ContainsFunc(inner[1:], isScript) {
			return inner
		}
	}
	return command
}

// isScript reports whether a word names what Python runs.
func isScript(word string) bool {
	return strings.HasSuffix(word, ".py") || word == "-m" || word == "--module"
}

// starts reports whether a command is that of a launcher or of Python.
func starts(command []string) bool {
	return IsPython(command[0]) || StartsTasks(command[0]) || named(command[0], command[1:]) != ""
}

// runsText reports whether a program is a shell or a script.
func runsText(program string) bool {
	name := path.Base(program)
	return slices.Contains(strings.Fields("sh bash dash zsh ksh fish csh tcsh"), name) ||
		strings.HasSuffix(name, ".sh") || strings.HasSuffix(name, ".py")
}

// skipOptions returns what follows a wrapper's options and, for env, the variables.
func (w wrapper) skipOptions(words []string) []string {
	for len(words) > 0 {
		switch word := words[0]; {
		case word == "--":
			return words[1:]
		case slices.Contains(w.valued, word):
			words = words[min(2, len(words)):]
		case strings.HasPrefix(word, "-") || assignment.MatchString(word):
			words = words[1:]
		default:
			return words
		}
	}
	return nil
}
