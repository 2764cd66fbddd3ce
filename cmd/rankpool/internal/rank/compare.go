package rank

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"os"

	"rankpool/cmd/rankpool/internal/version"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache"
	"rankpool/scheduler"
	"rankpool/staging"
)

// An intro is what ranks tell each other before they begin. What must be the same on all ranks is compared; a run whose ranks see
// different data would train on other samples than it says.
type intro struct {
	Host      string
	SlabBytes int64
	Options   []option
	Data      []dataIntro
	Before    []mpicache.Before // by data set, of a rank that was started again
}

// An option is one that what is trained on, or who has it, depends on.
type option struct{ Name, Value string }

type dataIntro struct {
	Name, Path string
	Identity   staging.Identity
}

// A blocksNote and a staging.Listing follow the intro where data sets differ, from the two ranks that are compared.
type blocksNote struct{ Digests []staging.Digest }

// encodeNote returns a note as bytes, never none. Paths may have any bytes, which JSON would change.
func encodeNote(note any) []byte {
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(note); err != nil {
		panic("a note of the ranks: " + err.Error()) // it has plain fields only
	}
	return text.Bytes()
}

func decodeNotes[T any](notes [][]byte) ([]T, error) {
	decoded := make([]T, len(notes))
	for rank, note := range notes {
		if err := gob.NewDecoder(bytes.NewReader(note)).Decode(&decoded[rank]); err != nil {
			return nil, fmt.Errorf("rank %d is another version of rankpool: start the same program on all nodes (%w)", rank, err)
		}
	}
	return decoded, nil
}

// intro returns what this rank tells the others.
func (r *process) intro(cfg *mpicache.Config, slabBytes int64) intro {
	host, _ := os.Hostname() // it is for messages only
	in := intro{Host: host, SlabBytes: slabBytes, Before: mpicache.ReadBefore(r.dir, r.transport.Rank(), r.transport.Size()), Options: []option{
		{"the version of rankpool", version.Text},
		{"the version of plans", fmt.Sprint(scheduler.PlanVersion)},
		{"--policy", cfg.Policy},
		{"--scorer", cfg.Scorer},
		{"--sampler", cfg.Sampler},
		{"--set", cfg.Options.String()},
		{"--assign", r.opt.Assign},
	}}
	for _, set := range r.sets {
		in.Data = append(in.Data, dataIntro{set.Name, set.Path, set.manifest.Identity()})
	}
	return in
}

// compare tells this rank's intro to all ranks, each by a round, and returns the sizes of their slabs. The error is the same on all
// ranks: one sentence, in which rank 0 is taken for right.
func (r *process) compare(own intro, round func(note any) ([][]byte, error)) ([]int64, error) {
	notes, err := round(own)
	if err != nil {
		return nil, err
	}
	intros, err := decodeNotes[intro](notes)
	if err != nil {
		return nil, r.leave(err)
	}
	slabs := make([]int64, len(intros))
	r.before = make([][]mpicache.Before, len(intros))
	for rank, in := range intros {
		slabs[rank], r.before[rank] = in.SlabBytes, in.Before
		if err := compareIntros(intros[0], in, rank); err != nil {
			return nil, r.leave(err)
		}
	}
	for rank, in := range intros {
		for i, set := range in.Data {
			if set.Identity.Differs(intros[0].Data[i].Identity) {
				return nil, r.leave(r.nameDifference(intros, rank, i, round))
			}
		}
	}
	if err := r.checkRun(); err != nil {
		return nil, r.leave(err)
	}
	return slabs, nil
}

// leave has what this rank has told the others reach them before it ends with err, which rank 0 says. Starting the ranks again would not
// help.
func (r *process) leave(err error) error {
	_ = r.transport.Close() // err says more
	r.refuse(err)
	if r.transport.Rank() == 0 {
		return err
	}
	return world.FirstSpeaks()
}

// compareIntros compares what can be told without looking into the data.
func compareIntros(first, in intro, rank int) error {
	for i, o := range first.Options {
		if i < len(in.Options) && in.Options[i] != o {
			return fmt.Errorf("rank 0 (%s) was started with %s %q, rank %d (%s) with %q: start all ranks alike",
				first.Host, o.Name, o.Value, rank, in.Host, in.Options[i].Value)
		}
	}
	if len(in.Data) != len(first.Data) {
		return fmt.Errorf("rank 0 (%s) serves %d data sets, rank %d (%s) %d: start all ranks alike", first.Host, len(first.Data), rank, in.Host, len(in.Data))
	}
	for i, set := range in.Data {
		if set.Name != first.Data[i].Name {
			return fmt.Errorf("data set %d of rank 0 (%s) is %s, and of rank %d (%s) %s: start all ranks alike",
				i, first.Host, first.Data[i].Name, rank, in.Host, set.Name)
		}
	}
	return nil
}

// nameDifference finds out how data set i of a rank differs first from that of rank 0: both tell the digests of their blocks, and then
// the samples of the first block that differs. All ranks make the rounds.
func (r *process) nameDifference(intros []intro, rank, i int, round func(note any) ([][]byte, error)) error {
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
	notes, err := round(blocks)
	if err != nil {
		return err
	}
	digests, err := decodeNotes[blocksNote](notes)
	if err != nil {
		return err
	}
	var listing staging.Listing
	if speaks {
		listing = m.List(staging.FirstBlock(digests[0].Digests, digests[rank].Digests))
	}
	if notes, err = round(listing); err != nil {
		return err
	}
	listings, err := decodeNotes[staging.Listing](notes)
	if err != nil {
		return err
	}
	return fmt.Errorf("data set %s is not the same on all nodes: rank 0 (%s) sees it in %s, and rank %d (%s) in %s, which %s",
		here.Name, intros[0].Host, here.Path, rank, intros[rank].Host, there.Path, staging.FirstDifference(listings[0], listings[rank]))
}
