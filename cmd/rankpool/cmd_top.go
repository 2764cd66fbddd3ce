package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"rankpool/cmd/rankpool/internal/exit"
)

const aboutTop = `top shows what the nodes of a running cache do: where the samples come from, how fast and how soon storage
and the other ranks give them, how long training waits, memory and GPUs.

It asks rank 0's door, on the first node of the run; another node's rank knows its own node only. The cache is
$RANKPOOL_SESSION's, else that of the Slurm job on this node, else the only one of yours on this machine. From
another machine, say which job: "rankpool top --job 4242" starts top as a step on the job's first node,

  srun --overlap --jobid=4242 --nodes=1 --ntasks=1 --nodelist=FIRST --pty rankpool top

Keys: q ends, s puts the nodes that wait most first, arrows and page keys move. Where stdout is no terminal it
prints a table every interval, with --json a line of JSON.`

const (
	leastInterval = 100 * time.Millisecond

	// onceReadings is how many readings --once takes at most: a rank that tells nothing new for five seconds is silent.
	onceReadings = 6
)

// topOptions are the flags of top.
type topOptions struct {
	session  string
	job      string
	once     bool
	json     bool
	interval time.Duration
	color    string
}

var colorChoices = []string{"auto", "always", "never"}

func newTopCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top [flags]",
		Short: "Watch the nodes of a running cache",
		Long:  aboutTop,
		Example: "  rankpool top\n" +
			"  rankpool top --job 4242\n" +
			"  rankpool top --once --json | jq .total.rates.samples_per_second",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return o.top(cmd.Context(), cmd.Flags())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.session, "session", "", "the session folder of the cache on this machine")
	flags.StringVar(&o.job, "job", "", "look at this Slurm job, by a step on its first node where that is another machine")
	flags.BoolVar(&o.once, "once", false, "print one table, of an interval, and end")
	flags.BoolVar(&o.json, "json", false, "print JSON, an object a reading")
	flags.DurationVar(&o.interval, "interval", time.Second, "pause between two readings; ranks tell news once a second")
	flags.StringVar(&o.color, "color", colorChoices[0], "colours and bars: auto (on a terminal; NO_COLOR takes the colours), always or never")
	return cmd
}

func (o *topOptions) check() error {
	if o.interval < leastInterval {
		return exit.Usagef("--interval: %v is too short: the least is %v", o.interval, leastInterval)
	}
	if o.session != "" && o.job != "" {
		return exit.Usagef("--session and --job name the same thing: give one of them")
	}
	return oneOf("color", o.color, colorChoices)
}

func (o *topOptions) top(parent context.Context, flags *pflag.FlagSet) error {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	place := hereTop()
	onTerminal := term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"
	live := onTerminal && !o.once && !o.json
	if o.job != "" {
		var err error
		if o.session, err = place.jobSession(o.job); err != nil {
			return err
		}
		if o.session == "" {
			self, err := os.Executable()
			if err != nil {
				return err
			}
			step := topJob{id: o.job, args: o.args(flags), live: live && term.IsTerminal(int(os.Stdin.Fd()))}
			return step.exec(os.Getenv, self)
		}
	}
	dir, err := place.session(o.session)
	if err != nil {
		return err
	}
	door, err := firstDoor(dir)
	if err != nil {
		return err
	}
	t := &topRun{
		topOptions: *o, dir: dir, door: topDoor{path: door}, out: os.Stdout,
		colors: o.color == "always" || o.color == "auto" && live && os.Getenv("NO_COLOR") == "",
		view:   topView{title: sessionTitle(dir), bars: live && o.color != "never" || o.color == "always", glyphs: glyphsFor(os.Getenv)},
	}
	switch {
	case o.once:
		return t.once(ctx)
	case live:
		return t.live(ctx, os.Stdin, os.Stdout)
	}
	return t.stream(ctx)
}

// args returns the flags that were given, without the job, for top on another node.
func (o *topOptions) args(flags *pflag.FlagSet) []string {
	var args []string
	flags.Visit(func(f *pflag.Flag) {
		if f.Name != "job" {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	return args
}

// sessionTitle says in a word or two which run a session is.
func sessionTitle(dir string) string {
	name := filepath.Base(dir)
	if _, id, found := strings.Cut(name, "-slurm"); found {
		return "job " + id
	}
	return name
}

// A topRun looks at one cache.
type topRun struct {
	topOptions
	dir     string // of the session
	door    topDoor
	out     io.Writer
	colors  bool
	history nodeHistory
	status  nodesStatus // the last one
	view    topView
}

// take takes a reading in. over: the run has ended.
func (t *topRun) take(r topReading) (over bool) {
	t.view.at = r.at
	if r.err != nil {
		t.view.notes = []string{fmt.Sprintf("the rank does not answer, and is asked again: %v", r.err)}
		_, err := os.Stat(t.dir)
		return errors.Is(err, fs.ErrNotExist)
	}
	t.status = r.status
	t.history.add(r.status.Nodes)
	t.view.rows, t.view.ranks, t.view.notes = t.history.rows(), r.status.Ranks, r.status.notes()
	return false
}

// once prints what happened between two readings.
func (t *topRun) once(ctx context.Context) error {
	defer t.door.close()
	for n := range onceReadings {
		if n > 0 {
			if err := pause(ctx, t.interval); err != nil {
				return err
			}
		}
		r := t.door.read()
		if r.err != nil {
			return r.err
		}
		t.take(r)
		if t.history.complete() {
			break
		}
	}
	return t.print()
}

// stream prints what happens until the run ends.
func (t *topRun) stream(ctx context.Context) error {
	defer t.door.close()
	for first := true; ; first = false {
		r := t.door.read()
		switch over := t.take(r); {
		case first && r.err != nil:
			return r.err
		case over:
			return nil
		case r.err != nil:
			fmt.Fprintln(os.Stderr, "rankpool:", t.view.notes[0])
		case !first:
			if err := t.print(); err != nil {
				return err
			}
		}
		if err := pause(ctx, t.interval); err != nil {
			return err
		}
	}
}

// pause waits, and returns why ctx ended when it does before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A topReport is what --json prints.
type topReport struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Rank    int       `json:"rank"` // that was asked
	Ranks   int       `json:"ranks"`
	Silent  []int     `json:"silent"` // ranks that rank 0 has not heard of for a while
	Total   nodeTotal `json:"total"`
	Nodes   []nodeRow `json:"nodes"`
}

// print prints the last readings as a table or as JSON.
func (t *topRun) print() error {
	out := bufio.NewWriter(t.out)
	if t.json {
		silent := append([]int{}, t.status.silent()...)
		report := topReport{t.view.at, t.dir, t.status.Rank, t.status.Ranks, silent, totalOf(t.view.rows), t.view.rows}
		if err := json.NewEncoder(out).Encode(report); err != nil {
			return err
		}
		return out.Flush()
	}
	for _, l := range t.view.frame() {
		fmt.Fprintln(out, l.text(t.colors))
	}
	return out.Flush()
}
