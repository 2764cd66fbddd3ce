package rank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize/english"

	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/transport/ranks"
	"rankpool/scheduler/plan"
	"rankpool/staging/dataset"
)

// An intro is what ranks send each other before they begin. Settings that must be the same on all
// ranks are compared: ranks that see different data would train on samples other than those
// reported.
type intro struct {
	Host      string
	SlabBytes int64
	Options   []option
	Data      []dataIntro
	Folder    string // for what outlives the rank
	Again     bool   // the folder is an earlier rank's of this launch
	Met       bool   // that rank had compared intros with the others
}

// An option is a setting that decides which samples are trained on, or who owns them.
type option struct{ Name, Value string }

type dataIntro struct {
	Name, Path string
	Samples    int
	Identity   dataset.Identity
}

// intro returns this rank's intro.
func (r *process) intro(slabBytes int64) intro {
	in := intro{
		Host: hostname(), SlabBytes: slabBytes,
		Folder: r.folder.dir, Again: r.folder.again, Met: r.folder.again && hasMemoryNote(r.folder.dir),
		Options: []option{
			{"the version of rankpool", version.Text},
			{"the version of plans", fmt.Sprint(plan.Version)},
			{"--system", r.opt.System.String()},
		},
	}
	for _, set := range r.sets {
		in.Data = append(in.Data, dataIntro{
			set.Name, set.Path, set.manifest.Len(), set.manifest.Identity(),
		})
	}
	return in
}

// compare sends this rank's intro to all ranks, and returns the sizes of their slabs. The error is
// the same on all ranks: one sentence, in which rank 0 is assumed to be right.
func (r *process) compare(ctx context.Context, own intro) ([]int64, error) {
	intros, err := exchange(ctx, r, channelIntro, own)
	if other := (*ranks.VersionError)(nil); errors.As(err, &other) {
		return nil, r.leave(err)
	}
	if err != nil {
		return nil, err
	}
	slabs := make([]int64, len(intros))
	for rank, in := range intros {
		slabs[rank] = in.SlabBytes
		if err := compareIntros(intros[0], in, rank); err != nil {
			return nil, r.leave(err)
		}
	}
	if err := cmp.Or(checkFolders(intros), r.checkRun()); err != nil {
		return nil, r.leave(err)
	}
	return slabs, nil
}

// checkFolders returns an error if a rank's folder was removed since the ranks first compared their
// intros: it had the scores that the plans were made from.
func checkFolders(intros []intro) error {
	met := slices.ContainsFunc(intros, func(in intro) bool { return in.Met })
	for rank, in := range intros {
		if met && !in.Again {
			return fmt.Errorf("rank %d (%s): %s", rank, in.Host, session.WasCleared(in.Folder))
		}
	}
	return nil
}

// leave makes sure that the messages of this rank reach the others before it ends with err, which
// rank 0 prints. Restarting the ranks would not help.
func (r *process) leave(err error) error {
	_ = r.transport.Close() // err is more specific
	r.refuse(err)
	if r.transport.Rank() == 0 {
		return err
	}
	return world.FirstSpeaks()
}

// compareIntros compares the intro of rank 0 with that of a rank.
func compareIntros(first, in intro, rank int) error {
	for i, o := range first.Options {
		if i < len(in.Options) && in.Options[i] != o {
			return fmt.Errorf(
				"rank 0 (%s) was started with %s %q, rank %d (%s) with %q: start all ranks alike",
				first.Host, o.Name, o.Value, rank, in.Host, in.Options[i].Value)
		}
	}
	if len(in.Data) != len(first.Data) {
		return fmt.Errorf("rank 0 (%s) serves %d data sets, rank %d (%s) %d: start all ranks alike",
			first.Host, len(first.Data), rank, in.Host, len(in.Data))
	}
	for i, set := range in.Data {
		if set.Name != first.Data[i].Name {
			return fmt.Errorf(
				"data set %d of rank 0 (%s) is %s, and of rank %d (%s) %s: start all ranks alike",
				i, first.Host, first.Data[i].Name, rank, in.Host, set.Name)
		}
	}
	for i, there := range in.Data {
		if here := first.Data[i]; there.Identity.Differs(here.Identity) {
			return fmt.Errorf("data set %s is not the same on all nodes: rank 0 (%s) sees %s in %s, and "+
				"rank %d (%s) %s in %s; to see what differs, run \"rankpool index\" on both nodes with "+
				"the same -o FILE", here.Name, first.Host, english.Plural(here.Samples, "sample", ""),
				here.Path, rank, in.Host, english.Plural(there.Samples, "sample", ""), there.Path)
		}
	}
	return nil
}
