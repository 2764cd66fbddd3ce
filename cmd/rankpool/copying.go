package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport"
)

// syncPolicies are the values of --fsync.
var syncPolicies = []string{"never", "end", "file"}

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
func (o *copyOptions) check(at world.Place) error {
	switch {
	case o.data == "":
		return exit.NoData()
	case o.dest == "":
		return exit.Usagef("where should it go? name a folder with --dest DEST")
	case !slices.Contains(syncPolicies, o.sync):
		return rank.OneOf("fsync", o.sync, syncPolicies)
	case o.ranks < 0:
		return exit.Usagef("--ranks must be at least 1, not %d", o.ranks)
	case at.Tasks > 0 && o.ranks != 0 && o.ranks != at.Tasks:
		return exit.Usagef("--ranks: %s started %d tasks, and each is one rank; leave --ranks out",
			at.By, at.Tasks)
	case o.progressSeconds < 0:
		return exit.Usagef("--progress must be at least 0 seconds, not %v", o.progressSeconds)
	}
	if err := rank.MakeAbsolute(&o.data, &o.dest); err != nil {
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
		own, err := world.Open(o.mpi)
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

// A copyProgress shows how far copying is: a bar on a terminal, else a line every so often.
type copyProgress struct {
	bar   *progressbar.ProgressBar // nil where stderr is not a terminal
	every time.Duration            // between two lines; 0: show nothing
	begin time.Time

	mu   sync.Mutex
	last time.Time
}

// newProgress returns a progress whose bar is called what.
func (o *copyOptions) newProgress(what string) *copyProgress {
	p := &copyProgress{begin: time.Now(), last: time.Now()}
	if !o.quiet {
		p.every = time.Duration(o.progressSeconds * float64(time.Second))
	}
	if p.every > 0 && term.IsTerminal(int(os.Stderr.Fd())) {
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(os.Stderr),
			progressbar.OptionSetWidth(20), progressbar.OptionShowBytes(true),
			progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return p
}

// update shows how far all ranks are, and prints a line when one is due.
func (p *copyProgress) update(bytes, all int64, line func(seconds float64) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.every <= 0:
	case p.bar != nil:
		p.bar.ChangeMax64(max(all, bytes+1)) // a full bar would end itself
		// a terminal that cannot be written to changes nothing
		_ = p.bar.Set64(bytes)
	case time.Since(p.last) >= p.every:
		p.last = time.Now()
		fmt.Fprintln(os.Stderr, "rankpool:", line(time.Since(p.begin).Seconds()))
	}
}

// end removes the bar from the terminal.
func (p *copyProgress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// doneText is the part of a progress line about bytes and time.
func doneText(bytes, all int64, seconds float64) string {
	return fmt.Sprintf("%s of %s (%.0f %%) in %.0f s (%s/s)", memory.Text(bytes), memory.Text(all),
		100*float64(bytes)/float64(max(all, 1)), seconds, memory.Text(int64(float64(bytes)/seconds)))
}
