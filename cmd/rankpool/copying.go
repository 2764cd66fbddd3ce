package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport"
	"rankpool/staging/dataset"
	"rankpool/staging/npy"
)

// copyOptions are the flags that stage and pack share: what the ranks copy, where to, and what is
// printed.
type copyOptions struct {
	data, dest  string
	choice      rank.Choice
	ranks       int
	json, quiet bool
	every       float64 // seconds between progress lines; only 0, for none, changes something
}

// register adds the flags that have the same help text in both.
func (o *copyOptions) register(flags *pflag.FlagSet) {
	o.choice.Register(flags)
	flags.IntVar(&o.ranks, "ranks", 0,
		"ranks in this process (default 1); under srun or mpirun every task is one")
	flags.BoolVar(&o.json, "json", false, "print the summary as one JSON object")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but errors")
	flags.Float64Var(&o.every, "progress", 1, "") // for scripts that run understands, too
	flags.Lookup("progress").Hidden = true
}

// still reports whether no progress is shown.
func (o *copyOptions) still() bool { return o.quiet || o.every == 0 }

// check validates the flags, and makes the paths absolute.
func (o *copyOptions) check(at world.Place) error {
	switch {
	case o.data == "":
		return exit.NoData()
	case o.dest == "":
		return exit.Usagef("where should it go? name a folder with --dest DEST")
	case o.ranks < 0:
		return exit.Usagef("--ranks must be at least 1, not %d", o.ranks)
	case at.Tasks > 0 && o.ranks != 0 && o.ranks != at.Tasks:
		return exit.Usagef("--ranks: %s started %d tasks, and each is one rank; leave --ranks out",
			at.By, at.Tasks)
	}
	if err := cmp.Or(o.choice.Check(), rank.MakeAbsolute(&o.data, &o.dest)); err != nil {
		return err
	}
	if inside(o.dest, o.data) || inside(o.data, o.dest) {
		return exit.Usagef("--dest: one of %s and %s contains the other; name a folder elsewhere",
			o.dest, o.data)
	}
	return nil
}

// inside reports whether path is dir or below it, by name.
func inside(path, dir string) bool {
	return strings.HasPrefix(path+"/", strings.TrimSuffix(dir, "/")+"/")
}

// join returns the transports of this process's ranks, and a function that closes them: one if it
// is a task of a launcher, else --ranks.
func (o *copyOptions) join(at world.Place) (all []transport.Transport, leave func(), err error) {
	if at.Tasks == 0 {
		all = transport.NewLocal(max(1, o.ranks))
	} else {
		own, err := world.Open()
		if err != nil {
			return nil, nil, err
		}
		all = []transport.Transport{own}
	}
	return all, func() {
		for _, transport := range all {
			_ = transport.Close() // an error means that a rank is gone, which has been reported
		}
	}, nil
}

// doneText is the part of a progress line about bytes and time.
func doneText(bytes, all int64, seconds float64) string {
	return fmt.Sprintf("%s of %s (%.0f %%) in %.0f s (%s/s)", memory.Text(bytes), memory.Text(all),
		100*float64(bytes)/float64(max(all, 1)), seconds, memory.Text(int64(float64(bytes)/seconds)))
}

// importanceOf reads a score for each sample of a data set.
func importanceOf(m *dataset.Manifest, path string) ([]float32, error) {
	scores, err := readImportance(path)
	if err == nil && len(scores) != m.Len() {
		err = fmt.Errorf("--importance: %s has %d scores, and the data set %d samples", path,
			len(scores), m.Len())
	}
	return scores, err
}

// readImportance reads scores by sample: an array of a .npy file, or one number a line.
func readImportance(path string) ([]float32, error) {
	if filepath.Ext(path) == ".npy" {
		a, err := npy.Read(path)
		if err != nil {
			return nil, fmt.Errorf("--importance: %w", err)
		}
		if len(a.Shape) != 1 {
			return nil, fmt.Errorf("--importance: %s is %v, and must have one score a sample", path,
				a)
		}
		return a.Float32s()
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--importance: %w", err)
	}
	defer file.Close()
	var scores []float32
	lines := bufio.NewScanner(file)
	for line := 1; lines.Scan(); line++ {
		score, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 32)
		if err != nil {
			return nil, fmt.Errorf("--importance: %s, line %d: %q is not a number", path, line,
				lines.Text())
		}
		scores = append(scores, float32(score))
	}
	return scores, lines.Err()
}
