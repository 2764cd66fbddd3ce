// Package pool stages samples into the memory of a cache that runs, before training begins.
package pool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/mpicache/door"
	"rankpool/staging/stage"
)

// A Rank is a rank of this machine that samples are staged into, and the result.
type Rank struct {
	Rank    int   `json:"rank"`
	Copied  int64 `json:"copied"`  // read into its memory
	Skipped int64 `json:"skipped"` // in memory already
	NoRoom  int64 `json:"no_room"`
	Failed  int64 `json:"failed"`
	Bytes   int64 `json:"bytes"`

	client   *door.Client
	ranks    int
	data     door.WelcomeData
	stream   uint32
	failures []stage.Failure
}

// Index returns the path of the index of the data set.
func (r *Rank) Index() string { return r.data.Index }

// Close closes the connections to ranks.
func Close(ranks []*Rank) {
	for _, r := range ranks {
		_ = r.client.Close() // it may be closed already
	}
}

// A Search describes the ranks to connect to: those of this machine that belong to a session.
type Search struct {
	Session string // folder
	Data    string // the data set's name, folder or manifest
	Ranks   int    // to wait for, at least 1
	// Tasks of this machine share its ranks: task gets every rank whose index modulo tasks is task.
	Tasks, Task int
	Wait        time.Duration
	Waiting     func(error) // called once, with the reason, if ranks are not ready
}

var errTimeout = errors.New("the ranks are not ready")

// Await connects to the ranks when all of this machine are ready. The caller closes them, also
// after an error. There may be none, if other tasks have them all.
func (s Search) Await(ctx context.Context) ([]*Rank, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Wait, errTimeout)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for first := true; ; first = false {
		ranks, err := s.connect()
		var missing *awaitError
		if !errors.As(err, &missing) {
			return ranks, err
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errTimeout) {
				return nil, cause
			}
			return nil, err
		case <-tick.C:
		}
		if first {
			s.Waiting(err)
		}
	}
}

// awaitError lists the ranks that are not ready.
type awaitError struct{ sentence string }

func (e *awaitError) Error() string { return e.sentence }

// connect connects to this task's ranks. The error is an *awaitError if a rank of this machine is
// not ready.
func (s Search) connect() (ranks []*Rank, err error) {
	folders := session.RankFolders(s.Session)
	if len(folders) < max(1, s.Ranks) {
		return nil,
			&awaitError{fmt.Sprintf(
				"%s holds %d ranks on this machine; start them with \"rankpool serve\", "+
					"or name another folder with --session", s.Session, len(folders))}
	}
	defer func() {
		if err != nil {
			Close(ranks)
			ranks = nil
		}
	}()
	for i, folder := range folders {
		if !launch.IsReady(folder) {
			return ranks, &awaitError{fmt.Sprintf("the rank in %s is not ready", folder)}
		}
		if i%s.Tasks != s.Task {
			continue
		}
		client, err := control.Dial(filepath.Join(folder, session.DoorName))
		if err != nil {
			return ranks, &awaitError{fmt.Sprintf("the rank in %s does not answer: %v", folder,
				err)}
		}
		r := &Rank{client: client}
		ranks = append(ranks, r)
		if err := r.find(s.Data); err != nil {
			return ranks, err
		}
	}
	return ranks, nil
}

// find finds the data set by its name, its folder or its manifest.
func (r *Rank) find(data string) error {
	welcome, err := r.client.Welcome()
	if err != nil {
		return err
	}
	r.Rank, r.ranks = welcome.Rank, welcome.Ranks
	names := []string{data}
	if sets, err := rank.ResolveData([]string{data}); err == nil {
		for _, set := range sets {
			names = append(names, set.Name, set.Path)
		}
	}
	var known, found []string
	for i, set := range welcome.Data {
		if slices.Contains(names, set.Name) || slices.Contains(names, set.Root) {
			r.data, r.stream = set, uint32(i)
			found = append(found, set.Name)
		}
		known = append(known, set.Name)
	}
	switch len(found) {
	case 0:
		return exit.Usagef("--data: the cache serves no data set %q, but %q", data, known)
	case 1:
		return nil
	}
	return exit.Usagef("--data: %q matches the data sets %q of the cache: name one of them",
		data, found)
}
