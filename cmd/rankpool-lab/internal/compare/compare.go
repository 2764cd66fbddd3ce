// Package compare trains under several systems, one after the other, and shows the trainings side
// by side ("rankpool-lab compare").
package compare

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"rankpool/benchmarks/slowfs"
	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/outlet"
	"rankpool/scheduler/systems"
)

// Systems are the systems that are compared by default: the published ones, two baselines, and
// rankpool.
var Systems = []string{
	"lru", "coordl", "nopfs", "quiver", "shade", "icache", "impact", "spidercache", "rankpool",
}

// passedOn are the flags of run, besides --data, that compare passes on for every training as they
// are. Run explains and checks them.
var passedOn = []string{
	"memory", "ranks", "trainers-per-rank", "tier", "runtime-dir", "tune",
}

// Options are the flags of compare.
type Options struct {
	systems    []string
	set        []string
	slowfsPath string
	seeds      int
	target     float64
	output     string
	command    []string
	data       []string
	flags      []string       // of run, for every training
	packages   string         // of run, for systems that read packages; "": none
	storage    *slowfs.Config // nil: the data are read where they are
}

// Register adds the flags of compare, and those of run that apply to every training.
func (o *Options) Register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&o.systems, "systems", Systems,
		"systems to train under, in this order, see \"rankpool-lab simulate --list\"")
	flags.StringArrayVar(&o.set, "set", nil,
		"SYSTEM.OPTION=VALUE: an option of one of the systems; may be given several times")
	flags.StringVar(&o.slowfsPath, "slowfs", "",
		"read the data through emulated storage, fresh for each training, with the settings of this "+
			"TOML file (needs FUSE)")
	flags.IntVar(&o.seeds, "seeds", 1,
		"trainings of each system; \"{seed}\" in the command is 0, 1, … in them")
	flags.Float64Var(&o.target, "target", 0,
		"the accuracy that the time to is shown, in (0, 1] (default: the highest that all trainings "+
			"reach)")
	flags.StringVarP(&o.output, "output", "o", "comparison",
		"folder for the page and the run logs; an interrupted comparison is resumed there")
	flags.StringArrayVar(&o.data, "data", nil,
		"folder or manifest of samples, as of \"rankpool run\"; may be given several times")
	flags.StringVar(&o.packages, "packages", "",
		"DIR:SIZE: the option packages of systems that read packages, see \"rankpool run\"")
	for _, name := range passedOn {
		var usual []string
		if name == "memory" { // what most systems draw depends on it
			usual = []string{"20%"}
		}
		flags.StringArray(name, usual, "as of \"rankpool run\"")
	}
}

// Run trains under each system with each seed, and writes the page and the table. flags is the
// parsed flag set that Register extended.
func (o *Options) Run(
	parent context.Context, flags *pflag.FlagSet, command []string, out io.Writer,
) error {
	o.command = command
	o.takeFlags(flags)
	if err := o.check(); err != nil {
		return err
	}
	ctx, cancel := exit.Interruptible(parent)
	defer cancel()
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	unlock, err := lock(o.output)
	if err != nil {
		return err
	}
	defer unlock()
	results, err := o.trainAll(ctx)
	if err != nil {
		return err
	}
	return o.show(results, out)
}

// takeFlags stores the flags of run that were given.
func (o *Options) takeFlags(flags *pflag.FlagSet) {
	for _, name := range passedOn {
		for _, value := range flags.Lookup(name).Value.(pflag.SliceValue).GetSlice() {
			o.flags = append(o.flags, "--"+name+"="+value)
		}
	}
}

func (o *Options) check() error {
	switch {
	case len(o.command) == 0:
		return exit.NoCommand("rankpool-lab compare --data DIR -- python train.py --sampler system")
	case len(o.data) == 0:
		return exit.NoData()
	case o.seeds < 1:
		return exit.Usagef("--seeds must be at least 1, not %d", o.seeds)
	case o.seeds > 1 && !strings.Contains(strings.Join(o.command, " "), seedWord):
		return exit.Usagef("--seeds %d: mark the seed's place in the command, as in: -- python "+
			"train.py --seed %s", o.seeds, seedWord)
	case o.target < 0 || o.target > 1 || math.IsNaN(o.target):
		return exit.Usagef("--target must be above 0 and at most 1, not %v", o.target)
	case len(o.systems) == 0:
		return exit.Usagef("--systems: which ones? The usual ones are %s", strings.Join(Systems, ","))
	}
	for i, name := range o.systems {
		if _, err := systems.Find(name); err != nil {
			return exit.Usagef("--systems: %w", err)
		}
		if slices.Contains(o.systems[:i], name) {
			return exit.Usagef("--systems: %s is there twice", name)
		}
	}
	for _, text := range o.set {
		if name, option, dotted := strings.Cut(text, "."); !dotted || !slices.Contains(o.systems, name) {
			return exit.Usagef("--set: %q is not SYSTEM.OPTION=VALUE with one of the systems %s",
				text, strings.Join(o.systems, ", "))
		} else if s, err := systems.Find(name); err == nil {
			if _, err := s.Parse([]string{option}); err != nil {
				return exit.Usagef("--set: %w", err)
			}
		}
	}
	if err := o.checkPackages(); err != nil {
		return err
	}
	return o.checkStorage()
}

func (o *Options) checkPackages() error {
	if o.packages == "" {
		return nil
	}
	if !slices.ContainsFunc(o.systems, packs) {
		return exit.Usagef("--packages: none of the systems %s reads packages; icache and impact do",
			strings.Join(o.systems, ", "))
	}
	return nil
}

// packs reports whether a system reads packages.
func packs(name string) bool {
	s, err := systems.Find(name)
	return err == nil && s.Packs
}

func (o *Options) checkStorage() error {
	if o.slowfsPath == "" {
		return nil
	}
	config, err := slowfs.Load(o.slowfsPath)
	if err != nil {
		return exit.Usagef("--slowfs: %w", err)
	}
	o.storage = &config
	for _, flag := range o.data {
		_, path := nameAndPath(flag)
		if info, err := os.Stat(path); err != nil {
			return fmt.Errorf("--data: %w", err)
		} else if !info.IsDir() {
			return exit.Usagef("--slowfs: the data must be a folder, and %s is a file", path)
		}
	}
	return nil
}

// lock keeps another compare out of the folder.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another \"rankpool-lab compare\" is writing to %s", dir)
	}
	return func() { f.Close() }, nil
}

// trainAll trains what has no result yet, and returns all results, by system and then seed.
func (o *Options) trainAll(ctx context.Context) ([]result, error) {
	var results []result
	var trained time.Duration // in this call
	done, total := 0, len(o.systems)*o.seeds
	for i, system := range o.systems {
		for seed := range o.seeds {
			t, number := o.training(system, seed), i*o.seeds+seed
			r, err := t.finished()
			if err != nil {
				return nil, err
			}
			place := fmt.Sprintf("%d of %d: %s", number+1, total, o.nameOf(&t))
			if r != nil {
				say("%s was trained before: %s", place, r.brief())
				results = append(results, *r)
				continue
			}
			say("%s%s", place, left(trained, done, total-number))
			begin := time.Now()
			if r, err = o.train(ctx, t); err != nil {
				return nil, err
			}
			if r.Reason == "" {
				trained, done = trained+time.Since(begin), done+1
			}
			say("%s: %s", place, r.brief())
			results = append(results, *r)
			if r.refused {
				break
			}
		}
	}
	if !slices.ContainsFunc(results, func(r result) bool { return r.Reason == "" }) {
		return nil, fmt.Errorf("no training ended well; the first: %s", results[0].Reason)
	}
	return results, nil
}

// nameOf names a training for messages.
func (o *Options) nameOf(t *training) string {
	if o.seeds == 1 {
		return t.system
	}
	return fmt.Sprintf("%s, seed %d", t.system, t.seed)
}

// left returns the estimated time for the remaining trainings, from those that are done; "" if none
// is.
func left(took time.Duration, done, rest int) string {
	if done == 0 {
		return ""
	}
	each := took / time.Duration(done)
	return fmt.Sprintf(" (about %v to go)", (each * time.Duration(rest)).Round(time.Second))
}

func say(format string, args ...any) {
	fmt.Fprintf(outlet.Stderr, "rankpool-lab: "+format+"\n", args...)
}
