package rank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache/training"
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
	Before    []training.Before // by data set, of a rank that was restarted
	Folder    string            // for what outlives the rank
	Again     bool              // the folder is an earlier rank's of this launch
	Met       bool              // that rank had compared intros with the others
}

// An option is a setting that decides which samples are trained on, or who owns them.
type option struct{ Name, Value string }

type dataIntro struct {
	Name, Path string
	Identity   dataset.Identity
}

// A blocksNote and then a dataset.Listing follow the intro if data sets differ, from the two ranks
// that are compared.
type blocksNote struct{ Digests []dataset.Digest }

// intro returns this rank's intro.
func (r *process) intro(slabBytes int64) intro {
	in := intro{
		Host: hostname(), SlabBytes: slabBytes,
		Before: training.ReadBefore(r.folder.dir, r.transport.Rank(), r.transport.Size()),
		Folder: r.folder.dir, Again: r.folder.again, Met: r.folder.again && hasMemoryNote(r.folder.dir),
		Options: []option{
			{"the version of rankpool", version.Text},
			{"the version of plans", fmt.Sprint(plan.Version)},
			{"--system", r.opt.System.String()},
		},
	}
	for _, set := range r.sets {
		in.Data = append(in.Data, dataIntro{set.Name, set.Path, set.manifest.Identity()})
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
	r.before = make([][]training.Before, len(intros))
	for rank, in := range intros {
		slabs[rank], r.before[rank] = in.SlabBytes, in.Before
		if err := compareIntros(intros[0], in, rank); err != nil {
			return nil, r.leave(err)
		}
	}
	for rank, in := range intros {
		for i, set := range in.Data {
			if set.Identity.Differs(intros[0].Data[i].Identity) {
				return nil, r.leave(r.nameDifference(ctx, intros, rank, i))
			}
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

// compareIntros compares everything that does not require reading the data.
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
	return nil
}

// nameDifference finds the first difference between data set i of a rank and that of rank 0: both
// send the digests of their blocks, and then the samples of the first block that differs. All ranks
// take part.
func (r *process) nameDifference(ctx context.Context, intros []intro, rank, i int) error {
	m := r.sets[i].manifest
	speaks := r.transport.Rank() == 0 || r.transport.Rank() == rank
	here, there := intros[0].Data[i], intros[rank].Data[i]
	var blocks blocksNote
	if speaks {
		blocks.Digests = m.BlockDigests()
		if here.Identity.Digest == there.Identity.Digest {
			blocks.Digests = m.ContentDigests()
		}
	}
	digests, err := exchange(ctx, r, channelBlocks, blocks)
	if err != nil {
		return err
	}
	var listing dataset.Listing
	if speaks {
		listing = m.List(dataset.FirstBlock(digests[0].Digests, digests[rank].Digests))
	}
	listings, err := exchange(ctx, r, channelListing, listing)
	if err != nil {
		return err
	}
	return fmt.Errorf("data set %s is not the same on all nodes: rank 0 (%s) sees it in %s, and "+
		"rank %d (%s) in %s, which %s",
		here.Name, intros[0].Host, here.Path, rank, intros[rank].Host, there.Path,
		dataset.FirstDifference(listings[0], listings[rank]))
}
