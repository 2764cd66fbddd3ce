package batchscript

import (
	"slices"
	"strconv"
	"strings"
)

// An option is one option of sbatch or srun in a script.
type option struct {
	line  int
	name  string // the long name; "" for a letter that is none of letters
	value string
}

// letters are the short options that the checks look at.
var letters = map[byte]string{
	'a': "array", 'c': "cpus-per-task", 'G': "gpus", 'N': "nodes", 'n': "ntasks", 'o': "output",
}

// parseOptions reads the options among words: --name=value, --name value, -N4 and -N 4. What
// follows an option counts as its value unless it is one itself, since only Slurm knows which have
// one.
func parseOptions(words []string, line int) []option {
	var options []option
	for i, word := range words {
		if len(word) < 2 || word[0] != '-' {
			continue
		}
		o := option{line: line}
		if name, isLong := strings.CutPrefix(word, "--"); isLong {
			o.name, o.value, _ = strings.Cut(name, "=")
		} else {
			o.name, o.value = letters[word[1]], strings.TrimPrefix(word[2:], "=")
		}
		if o.value == "" && i+1 < len(words) && words[i+1][:min(1, len(words[i+1]))] != "-" {
			o.value = words[i+1]
		}
		o.value = strings.Trim(o.value, `"'`)
		options = append(options, o)
	}
	return options
}

// find returns the last option of one of several names.
func find(options []option, names ...string) (option, bool) {
	for _, o := range slices.Backward(options) {
		if slices.Contains(names, o.name) {
			return o, true
		}
	}
	return option{}, false
}

// number returns the number at the beginning of an option's value, 0 if there is none.
func number(options []option, name string) int {
	o, _ := find(options, name)
	digits := o.value[:len(o.value)-len(strings.TrimLeft(o.value, "0123456789"))]
	n, err := strconv.Atoi(digits)
	if err != nil || n > 1<<20 { // more than any machine has, so that products do not overflow
		return 0
	}
	return n
}
