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

// wrappers are the programs that may precede a training command.
var wrappers = map[string]wrapper{
	"apptainer":   apptainer,
	"singularity": apptainer,
	"shifter": {valued: strings.Fields("-i --image -V --volume -e --env --env-file -m --module " +
		"-w --workdir")},
	"conda":   {verbs: []string{"run"}, valued: strings.Fields("-n --name -p --prefix --cwd")},
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
			return command
		}
		rest := command[1:]
		if len(w.verbs) > 0 {
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
