package batchscript

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

// An Option is one option of sbatch or srun in a script.
type Option struct {
	Line     int
	Name     string // the long name without dashes; an unknown option as it is written
	Value    string
	HasValue bool
	unknown  bool
}

// An optionTable holds the options of a program.
type optionTable struct {
	arity map[string]byte // of long names: '=' needs a value, '?' may have one, 0 takes none
	short map[byte]string // long names of letters
	names []string        // the long names in order
}

// newOptionTable reads a list of "[LETTER:]NAME[=|?]".
func newOptionTable(list string) optionTable {
	t := optionTable{arity: map[string]byte{}, short: map[byte]string{}}
	for word := range strings.FieldsSeq(list) {
		var arity byte
		if end := word[len(word)-1]; end == '=' || end == '?' {
			arity, word = end, word[:len(word)-1]
		}
		if letter, name, found := strings.Cut(word, ":"); found {
			t.short[letter[0]], word = name, name
		}
		t.arity[word] = arity
		t.names = append(t.names, word)
	}
	slices.Sort(t.names)
	return t
}

// The options of both sbatch and srun, and those of each alone.
//
// Source: SchedMD, sbatch(1) and srun(1) of Slurm 22.05, and the release notes up to 25.05 for the
// names that came later.
const (
	sharedOptions = `A:account= acctg-freq= bb= bbf= b:begin= D:chdir= cluster-constraint= M:clusters=
		comment= C:constraint= container= container-id= contiguous S:core-spec= cores-per-socket=
		cpu-freq= cpus-per-gpu= c:cpus-per-task= deadline= delay-boot= d:dependency= m:distribution=
		e:error= x:exclude= exclusive? export= extra= B:extra-node-info= gid= gpu-bind= gpu-freq= G:gpus=
		gpus-per-node= gpus-per-socket= gpus-per-task= gres= gres-flags= h:help hint= H:hold i:input=
		J:job-name= L:licenses= mail-type= mail-user= mcs-label= mem= mem-bind= mem-per-cpu= mem-per-gpu=
		mincpus= network= nice? k:no-kill? F:nodefile= w:nodelist= N:nodes= n:ntasks= tasks=
		ntasks-per-core= ntasks-per-gpu= ntasks-per-node= tasks-per-node= ntasks-per-socket=
		oom-kill-step? open-mode= o:output= O:overcommit s:oversubscribe p:partition= power= prefer=
		priority= profile= propagate? q:qos= Q:quiet reboot reservation= resv-ports? segment= signal=
		sockets-per-node= spread-job stepmgr switches= test-only thread-spec= threads-per-core= t:time=
		time-min= tmp= tres-bind= tres-per-task= uid= usage use-min-nodes v:verbose V:version wckey=`
	sbatchOptions = `a:array= batch= export-file= get-user-env? ignore-pbs kill-on-invalid-dep=
		no-requeue parsable requeue W:wait wait-all-nodes= wrap=`
	srunOptions = `accel-bind= async bcast? bcast-exclude= compress? cpu-bind= X:disable-status
		epilog= exact external het-group= I:immediate? interactive jobid= K:kill-on-bad-exit? l:label
		mpi= msg-timeout= multi-prog Z:no-allocate overlap E:preserve-env prolog= pty? quit-on-interrupt
		r:relative= send-libs? slurmd-debug= task-epilog= task-prolog= T:threads= treewidth= u:unbuffered
		W:wait= whole x11?`
)

var (
	sbatchTable = newOptionTable(sharedOptions + " " + sbatchOptions)
	srunTable   = newOptionTable(sharedOptions + " " + srunOptions)
)

// aliases are alternative names of options.
var aliases = map[string]string{"tasks": "ntasks", "tasks-per-node": "ntasks-per-node"}

// resolve returns the option with a long name or, as in getopt, the only one with that prefix.
func (t optionTable) resolve(name string) (string, bool) {
	if _, found := t.arity[name]; !found {
		at, _ := slices.BinarySearch(t.names, name)
		if name == "" || at == len(t.names) || !strings.HasPrefix(t.names[at], name) ||
			at+1 < len(t.names) && strings.HasPrefix(t.names[at+1], name) {
			return name, false
		}
		name = t.names[at]
	}
	if alias, found := aliases[name]; found {
		name = alias
	}
	return name, true
}

// parseOptions parses the options at the beginning of words, as getopt does, and returns the
// remaining words.
func parseOptions(words []string, at int, table optionTable) (options []Option, rest []string) {
	for len(words) > 0 {
		word := words[0]
		if word == "--" {
			return options, words[1:]
		}
		if len(word) < 2 || word[0] != '-' {
			return options, words
		}
		words = words[1:]
		if name, isLong := strings.CutPrefix(word, "--"); isLong {
			o := Option{Line: at}
			o.Name, o.Value, o.HasValue = strings.Cut(name, "=")
			known := false
			o.Name, known = table.resolve(o.Name)
			o.unknown = !known
			if !o.HasValue && table.arity[o.Name] == '=' && len(words) > 0 {
				o.Value, o.HasValue, words = words[0], true, words[1:]
			}
			options = append(options, o)
			continue
		}
		var found []Option
		found, words = table.letters(word[1:], at, words)
		options = append(options, found...)
	}
	return options, nil
}

// letters parses a word of short options (-lN4), given the words after it.
func (t optionTable) letters(letters string, at int, words []string) ([]Option, []string) {
	var options []Option
	for i := range len(letters) {
		o := Option{Line: at, Name: letters[i : i+1]}
		name, known := t.short[letters[i]]
		if !known {
			o.unknown = true
			return append(options, o), words
		}
		o.Name = name
		value := strings.TrimPrefix(letters[i+1:], "=")
		switch {
		case t.arity[name] == 0:
			options = append(options, o)
			continue
		case value != "":
			o.Value, o.HasValue = value, true
		case t.arity[name] == '=' && len(words) > 0:
			o.Value, o.HasValue, words = words[0], true, words[1:]
		}
		return append(options, o), words
	}
	return options, words
}

// find returns the last option of one of several names.
func find(options []Option, names ...string) (Option, bool) {
	for _, o := range slices.Backward(options) {
		if slices.Contains(names, o.Name) {
			return o, true
		}
	}
	return Option{}, false
}

// near returns the name that a misspelt word probably means, "" if none is within two letters.
func near(word string, names []string) string {
	best, bestDistance := "", 3
	for _, name := range names {
		if d := levenshtein.Distance(word, name, nil); d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}
