package main

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/world"
)

// copyOptions are the flags that stage and pack share: what the ranks copy, where to, and what is
// printed.
type copyOptions struct {
	mpi             world.MPIOptions
	data, root      string // root: the folder of a manifest's data, if not the one it names
	dest            string
	ranks           int
	sync            string
	dryRun, json    bool
	quiet           bool
	progressSeconds float64
}

// register adds the flags that have the same help text in both.
func (o *copyOptions) register(flags *pflag.FlagSet) {
	o.mpi.Register(flags)
	flags.StringVar(&o.root, "root", "",
		"where the data are now, if the manifest names another folder")
	flags.IntVar(&o.ranks, "ranks", 0,
		"ranks in this process (default 1); under srun or mpirun every task is one")
	flags.BoolVar(&o.dryRun, "dry-run", false, "only print what would be done")
	flags.BoolVar(&o.json, "json", false, "print the summary as one JSON object")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but errors")
	flags.Float64Var(&o.progressSeconds, "progress", 10,
		"seconds between progress lines; 0: none. A terminal shows a bar instead")
}

// check validates the flags, and makes the paths absolute.
func (o *copyOptions) check(at world.Place) (err error) {
	switch {
	case o.data == "":
		return exit.NoData()
	case o.dest == "":
		return exit.Usagef("where should it go? name a folder with --dest DEST")
	case !slices.Contains([]string{"never", "end", "file"}, o.sync):
		return exit.Usagef("--fsync: %q is not one of never, end, file", o.sync)
	case o.ranks < 0:
		return exit.Usagef("--ranks must be at least 1, not %d", o.ranks)
	case at.Tasks > 0 && o.ranks != 0 && o.ranks != at.Tasks:
		return exit.Usagef("--ranks: %s started %d tasks, and each is one rank; leave --ranks out",
			at.By, at.Tasks)
	case o.progressSeconds < 0:
		return exit.Usagef("--progress must be at least 0 seconds, not %v", o.progressSeconds)
	}
	for _, path := range []*string{&o.data, &o.dest} {
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
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
