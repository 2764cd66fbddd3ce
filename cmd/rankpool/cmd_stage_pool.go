package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/launch"
	"rankpool/cmd/rankpool/internal/rank"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/door"
	"rankpool/slurm"
	"rankpool/staging/dataset"
	"rankpool/staging/stage"
)

// poolMode stages into the memory of a cache that runs, before training asks.
const poolMode = "pool"

// These limits bound one request to a rank, which is answered when all of its samples are staged.
// Training that begins meanwhile waits for the answer: 128 MiB take 0.1 s to 5 s.
const (
	poolChunkSamples = 2048
	poolChunkBytes   = 128 << 20
)

func (o *stageOptions) checkPool() error {
	switch {
	case o.dest != "":
		return exit.Usagef(
			"--dest: --mode pool stages into the memory of a cache that runs; leave --dest out")
	case o.dryRun:
		return exit.Usagef("--dry-run cannot be used with --mode pool: only the ranks know what fits")
	case o.waitSeconds < 0:
		return exit.Usagef("--wait must be at least 0 seconds, not %v", o.waitSeconds)
	}
	return o.part.check()
}

// A poolRank is a rank of this machine that samples are staged into, and what became of them.
type poolRank struct {
	Rank    int   `json:"rank"`
	Copied  int64 `json:"copied"`  // read into its memory
	Skipped int64 `json:"skipped"` // there already
	NoRoom  int64 `json:"no_room"`
	Failed  int64 `json:"failed"`
	Bytes   int64 `json:"bytes"`

	client   *door.Client
	ranks    int
	data     door.WelcomeData
	stream   uint32
	failures []stage.Failure
}

// A poolReport is the result of all ranks.
type poolReport struct {
	Copied     int64       `json:"copied"`
	Skipped    int64       `json:"skipped"`
	Failed     int64       `json:"failed"`
	Bytes      int64       `json:"bytes"`
	Seconds    float64     `json:"seconds"`
	Mode       string      `json:"mode"`
	NoRoom     int64       `json:"no_room"`
	Ranks      []*poolRank `json:"ranks"`
	FailedList string      `json:"failed_list"`
	TotalItems int64       `json:"total_items"` // of the part, what the ranks here own
	TotalBytes int64       `json:"total_bytes"`
	Session    string      `json:"session"`
}

// stagePool stages into the ranks of this machine; several tasks on it share the ranks.
func (o *stageOptions) stagePool(cmd *cobra.Command, at world.Place) error {
	ctx, stop := exit.Interruptible(cmd.Context())
	defer stop()
	if err := o.findSession(); err != nil {
		return err
	}
	ranks, err := o.awaitRanks(ctx, at)
	defer func() {
		for _, r := range ranks {
			_ = r.client.Close() // it may be closed already
		}
	}()
	if err != nil || len(ranks) == 0 { // other tasks have all ranks
		return err
	}
	m, err := dataset.OpenIndex(ranks[0].data.Index)
	if err != nil {
		return err
	}
	ids, err := o.part.ordered(m)
	if err != nil {
		return err
	}
	report, err := o.fill(ctx, ranks, m, ids)
	return o.concludePool(cmd, report, err)
}

// findSession finds the session folder: from the flag, from the variable of training processes, or
// from the job.
func (o *stageOptions) findSession() (err error) {
	if o.session = cmp.Or(o.session, os.Getenv("RANKPOOL_SESSION")); o.session != "" {
		return nil
	}
	job := slurm.Detect(os.Getenv)
	if job.JobID == "" {
		return exit.Usagef("which cache? name its folder with --session DIR, as for " +
			"\"rankpool serve\"")
	}
	o.session, err = session.OfJob(job)
	return err
}

// awaitRanks waits until all ranks of this machine accept, and connects to this task's share of
// them.
func (o *stageOptions) awaitRanks(ctx context.Context, at world.Place) ([]*poolRank, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(o.waitSeconds*float64(time.Second)),
		errRanksAwaited)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; said = true {
		ranks, err := o.connect(max(1, at.LocalTasks), at.LocalTask)
		var missing *awaitError
		if !errors.As(err, &missing) {
			return ranks, err
		}
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errRanksAwaited) {
				return nil, cause
			}
			return nil, err
		case <-tick.C:
		}
		if !said && !o.quiet && at.LocalTask == 0 {
			fmt.Fprintf(os.Stderr, "rankpool: waiting for the cache: %v\n", err)
		}
	}
}

var errRanksAwaited = errors.New("the ranks were waited for")

// awaitError lists the ranks that are not ready.
type awaitError struct{ sentence string }

func (e *awaitError) Error() string { return e.sentence }

// connect connects to every rank here whose index modulo tasks is task. The error is an *awaitError
// if some rank does not accept yet.
func (o *stageOptions) connect(tasks, task int) (ranks []*poolRank, err error) {
	folders := session.RankFolders(o.session)
	if len(folders) < max(1, o.ranks) {
		return nil,
			&awaitError{fmt.Sprintf(
				"%s holds %d ranks on this machine; start them with \"rankpool serve\", "+
					"or name another folder with --session", o.session, len(folders))}
	}
	defer func() {
		if err != nil {
			for _, r := range ranks {
				_ = r.client.Close() // the earlier error is returned
			}
			ranks = nil
		}
	}()
	for i, folder := range folders {
		if !launch.IsReady(folder) {
			return ranks, &awaitError{fmt.Sprintf("the rank in %s is not ready", folder)}
		}
		if i%tasks != task {
			continue
		}
		client, err := control.Dial(filepath.Join(folder, session.DoorName))
		if err != nil {
			return ranks, &awaitError{fmt.Sprintf("the rank in %s does not answer: %v", folder,
				err)}
		}
		r := &poolRank{client: client}
		ranks = append(ranks, r)
		if err := r.find(o.data); err != nil {
			return ranks, err
		}
	}
	return ranks, nil
}

// find finds the data set by its name, its folder or its manifest.
func (r *poolRank) find(data string) error {
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
