// Package top shows what the nodes of a running cache do: on a terminal, as a table, or as JSON.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"golang.org/x/term"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/door"
)

// onceReadings is how many readings at most make one table: a rank without news for five seconds is
// silent.
const onceReadings = 6

// Options select the cache to show, and how to show it.
type Options struct {
	Session  string        // folder; "" looks for the only one
	Once     bool          // one table
	JSON     bool          // an object a reading
	Interval time.Duration // between two readings
}

// Run shows the cache until it ends, or the user does.
func (o *Options) Run(parent context.Context) error {
	ctx, stop := exit.Interruptible(parent)
	defer stop()
	dir, err := find(o.Session, session.Bases())
	if err != nil {
		return err
	}
	path, err := firstDoor(dir)
	if err != nil {
		return err
	}
	t := &run{Options: *o, dir: dir, door: control.Poller{Path: path}, out: os.Stdout}
	onTerminal := term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"
	if onTerminal && !o.Once && !o.JSON {
		return t.live(ctx, os.Stdin, os.Stdout)
	}
	return t.follow(ctx)
}

// A run follows one cache.
type run struct {
	Options
	dir     string // of the session
	door    control.Poller
	out     io.Writer
	at      time.Time
	status  door.Status // the last one
	rows    []nodeRow
	notes   []string
	byStall bool // those that wait most first
}

// title names the run in a word or two: its job or its session.
func (t *run) title() string {
	name := filepath.Base(t.dir)
	if _, id, found := strings.Cut(name, "-slurm"); found {
		return "job " + id
	}
	return name
}

// add adds a reading. over is true if the run has ended.
func (t *run) add(r reading) (over bool) {
	t.at = r.at
	if r.err != nil {
		t.notes = []string{fmt.Sprintf("the rank does not answer; retrying: %v", r.err)}
		_, err := os.Stat(t.dir)
		return errors.Is(err, fs.ErrNotExist)
	}
	t.status = r.status
	t.rows, t.notes = rowsAfter(t.rows, r.status.Nodes), notesOn(r.status)
	return false
}

// follow prints what happens between two readings until the run ends; with Once, once.
func (t *run) follow(ctx context.Context) error {
	defer t.door.Close()
	for n := 1; ; n++ {
		r := t.read()
		switch over := t.add(r); {
		case r.err != nil && (n == 1 || t.Once):
			return r.err
		case over:
			return nil
		case r.err != nil:
			fmt.Fprintln(os.Stderr, "rankpool:", t.notes[0])
		case t.Once && (t.rated() || n == onceReadings):
			return t.print()
		case !t.Once && n > 1:
			if err := t.print(); err != nil {
				return err
			}
		}
		select {
		case <-time.After(t.Interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// rated reports whether all rates are known.
func (t *run) rated() bool {
	return !slices.ContainsFunc(t.rows, func(r nodeRow) bool { return r.Rates == nil })
}

// A jsonReport is the output of --json.
type jsonReport struct {
	Time    time.Time `json:"time"`
	Session string    `json:"session"`
	Rank    int       `json:"rank"` // the rank that answered
	Ranks   int       `json:"ranks"`
	Silent  []int     `json:"silent"` // ranks that have been silent for a while
	Total   nodeTotal `json:"total"`
	Nodes   []nodeRow `json:"nodes"`
	Jobs    []jobRow  `json:"jobs,omitempty"` // the trainings, see stats.Reading
}

// print prints the last readings as a table or as JSON.
func (t *run) print() error {
	if t.JSON {
		return json.NewEncoder(t.out).Encode(jsonReport{
			t.at, t.dir, t.status.Rank, t.status.Ranks, silentOf(t.status),
			totalOf(t.rows), t.rows, jobsOf(t.rows),
		})
	}
	_, err := lipgloss.Fprintln(t.out, strings.Join(t.frame(), "\n"))
	return err
}
