package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/door"
	"rankpool/mpicache/files"
	"rankpool/mpicache/training"
	"rankpool/scheduler/protocol"
)

// A crew is the trainers of a training, in step with each other. Each does what the Python client
// does: it keeps its reports of three epochs, and sends them to a restarted cache.
type crew struct {
	t        *testing.T
	cluster  *cluster
	ranks    int
	batch    int // of one trainer
	edit     func(*Config)
	trainers []*trainer
	told     [][]toldReport
	stream   []string // global batches
	at       map[place]func()
	first    func() // before trainers connect to ranks that were restarted; nil: nothing
}

type toldReport struct {
	epoch   int
	payload []byte
}

// place is a batch of an epoch.
type place struct{ epoch, batch int }

const crewSamples = 240

// newCrew starts ranks, and trainers that have opened the data set.
func newCrew(t *testing.T, ranks, world, globalBatch int, edit func(*Config)) *crew {
	t.Helper()
	if edit == nil {
		edit = func(*Config) {}
	}
	c := &crew{t: t, ranks: ranks, batch: globalBatch / world, edit: edit, at: map[place]func(){}}
	c.cluster = newClusterIn(t, t.TempDir, ranks, crewSamples, 3000, edit)
	c.trainers = make([]*trainer, world)
	c.told = make([][]toldReport, world)
	for r := range world {
		c.trainers[r] = &trainer{
			rank: r, world: world, training: protocol.Training{Life: uint64(100 + r)},
		}
	}
	c.connect()
	t.Cleanup(func() {
		for _, tr := range c.trainers {
			tr.close()
		}
		c.cluster.close()
	})
	return c
}

// all calls f for every trainer at the same time.
func (c *crew) all(f func(tr *trainer) error) error {
	errs := make([]error, len(c.trainers))
	var group sync.WaitGroup
	for r, tr := range c.trainers {
		group.Go(func() { errs[r] = f(tr) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// openFrom opens the data set for every trainer, with a checkpoint.
func (c *crew) openFrom(at place, state protocol.Digest) {
	c.t.Helper()
	for _, tr := range c.trainers {
		tr.training.Checkpoint = &protocol.Checkpoint{Epoch: at.epoch, Batch: at.batch, State: state}
		if err := tr.open("pads", c.batch); err != nil {
			c.t.Fatal(err)
		}
	}
}

// connect connects every trainer to the cluster, and sends what the trainer has sent to another
// one.
func (c *crew) connect() {
	c.t.Helper()
	err := c.all(func(tr *trainer) error {
		fresh, err := c.cluster.trainer(tr.rank, tr.world)
		if err != nil {
			return err
		}
		tr.Client, tr.slab = fresh.Client, fresh.slab
		if err := tr.open("pads", c.batch); err != nil {
			return err
		}
		for _, r := range c.told[tr.rank] {
			err = errors.Join(err, tr.Send(door.KindReport, r.payload))
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// restart ends the ranks as a signal does, lets hurt do harm, and starts them again.
func (c *crew) restart(hurt func(dirs []string)) {
	c.t.Helper()
	for _, tr := range c.trainers {
		tr.close()
	}
	c.cluster.kill()
	hurt(c.cluster.dirs)
	c.begin()
	if c.first != nil {
		c.first()
	}
	c.connect()
}

// begin starts the ranks again.
func (c *crew) begin() {
	c.t.Helper()
	dirs := slices.Values(c.cluster.dirs)
	var next []string
	for dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			c.t.Fatal(err)
		}
		next = append(next, dir)
	}
	i := 0
	c.cluster = newClusterIn(c.t, func() string { i++; return next[i-1] }, c.ranks, crewSamples,
		3000, c.edit)
}

// train trains from a place up to another, and does what is due after each global batch; before the
// first of an epoch its number is -1.
func (c *crew) train(from, to place) error {
	for e := from.epoch; e <= to.epoch; e++ {
		first := 0
		if e == from.epoch {
			first = from.batch
		}
		if e == to.epoch && to.batch == 0 {
			break
		}
		if err := c.epoch(e, first, to); err != nil {
			return err
		}
	}
	return nil
}

func (c *crew) epoch(epoch, first int, to place) error {
	c.due(place{epoch, -1})
	parts := make([][][]uint32, len(c.trainers))
	if err := c.all(func(tr *trainer) (err error) {
		tr.from, tr.tally = first, tally{Stream: tr.stream, Epoch: uint32(epoch)}
		parts[tr.rank], err = tr.plan(epoch)
		return err
	}); err != nil {
		return fmt.Errorf("epoch %d: %w", epoch, err)
	}
	for b := first; b < len(parts[0]); b++ {
		if (place{epoch, b}) == to {
			return nil
		}
		var batch []uint32
		for r := range parts {
			batch = append(batch, parts[r][b]...)
		}
		c.stream = append(c.stream, fmt.Sprintf("%d %d %v", epoch, b, sorted(batch)))
		if err := c.all(
			func(tr *trainer) error {
				return c.step(tr, epoch, b, parts[tr.rank][b])
			}); err != nil {
			return fmt.Errorf("epoch %d, batch %d: %w", epoch, b, err)
		}
		c.due(place{epoch, b})
	}
	return nil
}

// step trains a batch, from storage if the rank has no plan, and reports it.
func (c *crew) step(tr *trainer, epoch, b int, want []uint32) error {
	ids, lease, _, err := tr.get(epoch, b)
	var no door.Error
	switch {
	case errors.As(err, &no) && no.Code == door.CodeNotReady:
	case err != nil:
		return err
	case !slices.Equal(ids, want):
		return fmt.Errorf("got %v, want %v", ids, want)
	default:
		if err := tr.Send(door.KindRelease, tr.tally.Append(u32s(1, lease))); err != nil {
			return err
		}
	}
	report := u32s(tr.stream, uint32(epoch), uint32(b), uint32(len(want)))
	for _, id := range want {
		report = append(report, u32s(0x3f000000+id<<8+uint32(epoch)<<17)...)
	}
	r := tr.rank
	c.told[r] = append(
		slices.DeleteFunc(c.told[r], func(t toldReport) bool { return t.epoch < epoch-2 }),
		toldReport{epoch, report})
	return tr.Send(door.KindReport, report)
}

func (c *crew) due(at place) {
	if f := c.at[at]; f != nil {
		f()
	}
}

// trainAndSave trains up to a place, and saves a checkpoint there.
func (c *crew) trainAndSave(at place) door.Saved {
	c.t.Helper()
	if err := c.train(place{}, at); err != nil {
		c.t.Fatal(err)
	}
	saved, err := c.save(at)
	if err != nil {
		c.t.Fatal(err)
	}
	return saved
}

// save makes every trainer save, and returns the reply, which must be the same for all.
func (c *crew) save(at place) (door.Saved, error) {
	answers := make([]door.Saved, len(c.trainers))
	err := c.all(func(tr *trainer) error {
		reply, err := tr.Call(door.KindSave, u32s(tr.stream, uint32(at.epoch), uint32(at.batch)))
		if err == nil {
			err = json.Unmarshal(reply, &answers[tr.rank])
		}
		return err
	})
	for _, a := range answers {
		if a.State != answers[0].State {
			err = errors.Join(err, fmt.Errorf("trainers received different digests: %+v", answers))
		}
	}
	return answers[0], err
}

// reference returns the stream of an undisturbed training, in global batches of 12.
func reference(t *testing.T, epochs int) []string {
	t.Helper()
	c := newCrew(t, 1, 1, 12, nil)
	if err := c.train(place{}, place{epochs, 0}); err != nil {
		t.Fatal(err)
	}
	return c.stream
}

const batchesOf = crewSamples / 12

func nothing([]string) {}

func clearLast(dirs []string) { _ = os.RemoveAll(dirs[len(dirs)-1]) }

func clearAll(dirs []string) {
	for _, dir := range dirs {
		_ = os.RemoveAll(dir)
	}
}

// TestScoresOutliveTheRanks kills all ranks at one moment or two, in the first epoch, in a later
// one, and between two: the stream is that of an undisturbed training.
func TestScoresOutliveTheRanks(t *testing.T) {
	const epochs = 4
	want := reference(t, epochs)
	moments := map[string][]place{
		"before the first batch":    {{0, -1}},
		"epoch 0":                   {{0, 3}},
		"the last batch of epoch 0": {{0, batchesOf - 1}},
		"between epochs":            {{2, -1}},
		"the first batch":           {{2, 0}},
		"behind the cut":            {{1, batchesOf - 2}},
		"twice in an epoch":         {{2, 3}, {2, 9}},
		"in two epochs":             {{1, 9}, {2, 4}},
		"at two boundaries":         {{2, -1}, {3, -1}},
	}
	for when, places := range moments {
		for _, n := range []struct{ ranks, world int }{{1, 1}, {2, 2}, {2, 4}, {4, 4}} {
			if n.ranks == 4 && len(places) > 1 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d-%d", when, n.ranks, n.world), func(t *testing.T) {
				t.Parallel()
				c := newCrew(t, n.ranks, n.world, 12, nil)
				for _, at := range places {
					c.at[at] = func() { c.restart(nothing) }
				}
				if err := c.train(place{}, place{epochs, 0}); err != nil {
					t.Fatal(err)
				}
				compareStreams(t, c.stream, want)
			})
		}
	}
}

func compareStreams(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("the streams differ from global batch %d on, of %d and %d", i, len(got),
				len(want))
			return
		}
	}
}

// TestLostScoresEndTraining checks that ranks that cannot know the scores make no plan: trainers
// get an error at the next epoch, and until then read storage.
func TestLostScoresEndTraining(t *testing.T) {
	want := reference(t, 4)
	for _, ranks := range []int{1, 2} {
		for _, at := range []place{{2, 5}, {2, -1}, {3, batchesOf - 1}} {
			c := newCrew(t, ranks, 2, 12, nil)
			c.at[at] = func() { c.restart(clearAll) }
			err := c.train(place{}, place{5, 0})
			if err == nil || !strings.Contains(err.Error(),
				"are lost: no rank has kept them; resume from a checkpoint") {
				t.Errorf("after %v: %v", at, err)
			}
			compareStreams(t, c.stream, want[:min(len(want), len(c.stream))])
			if last := (at.epoch + 1) * batchesOf; at.batch >= 0 && len(c.stream) != last {
				t.Errorf("after %v training ended after %d batches, want %d", at, len(c.stream),
					last)
			}
		}
	}
}

// TestFIFOsInTheFolder checks that ranks do not wait for somebody to write to a FIFO that is in
// place of one of their files: training ends with an error.
func TestFIFOsInTheFolder(t *testing.T) {
	c := newCrew(t, 2, 2, 12, nil)
	c.at[place{2, 5}] = func() { c.restart(statesAreFIFOs(t)) }
	if err := c.train(place{}, place{4, 0}); err == nil ||
		!strings.Contains(err.Error(), "are lost") {
		t.Errorf("%v", err)
	}
	for _, name := range []string{"trainers", slabName} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := files.Read(path); err == nil ||
			err.Error() != "mpicache: "+path+" is not a regular file" {
			t.Errorf("%s: %v", name, err)
		}
		forgetSlab(dir)
	}
}

// statesAreFIFOs puts FIFOs in the place of all importance states.
func statesAreFIFOs(t *testing.T) func(dirs []string) {
	return func(dirs []string) {
		for _, dir := range dirs {
			states, err := filepath.Glob(filepath.Join(dir, "state-*"))
			if err != nil || len(states) == 0 {
				t.Fatal(states, err)
			}
			for _, path := range states {
				if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestOneRankLost checks that a rank that has lost what others have kept does not plan from
// something else.
func TestOneRankLost(t *testing.T) {
	t.Parallel() // it waits
	c := newCrew(t, 2, 2, 12, nil)
	c.at[place{2, 5}] = func() { c.restart(clearLast) }
	if err := c.train(place{}, place{4, 0}); err == nil ||
		!strings.Contains(err.Error(), "are lost") {
		t.Errorf("%v", err)
	}
	compareStreams(t, c.stream, reference(t, 3))
}

// TestRanksComparePlans makes a rank make a plan from other scores than the others: no trainer gets
// it.
func TestRanksComparePlans(t *testing.T) {
	c := newCrew(t, 2, 2, 12, nil)
	c.at[place{1, 5}] = func() {
		c.cluster.nodes[1].coordinating(doubled)
	}
	err := c.train(place{}, place{4, 0})
	if err == nil || !strings.Contains(err.Error(),
		"ranks 0 and 1 have planned epoch 2 from different importance scores") {
		t.Errorf("%v", err)
	}
	compareStreams(t, c.stream, reference(t, 2))
}

// TestCheckpointsResume saves at a place, continues for a while, as a training does that is killed
// later, and resumes with other ranks and trainers, from the state file or from the previous one.
func TestCheckpointsResume(t *testing.T) {
	const epochs = 4
	want := reference(t, epochs)
	for _, c := range []struct {
		at    place
		ranks [2]int
		world [2]int
		more  int   // batches trained after it
		again bool  // another checkpoint is made, and lost
		late  place // of that
	}{
		{at: place{0, 5}, ranks: [2]int{1, 2}, world: [2]int{1, 2}},
		{at: place{1, 0}, ranks: [2]int{2, 1}, world: [2]int{2, 1}, more: 7},
		{at: place{1, 7}, ranks: [2]int{2, 2}, world: [2]int{4, 2}, more: 30},
		{at: place{2, batchesOf - 1}, ranks: [2]int{4, 2}, world: [2]int{4, 4}},
		{at: place{2, 0}, ranks: [2]int{2, 2}, world: [2]int{2, 2}, again: true, late: place{2, 9}},
		{at: place{1, 3}, ranks: [2]int{2, 4}, world: [2]int{2, 4}, again: true, late: place{3, 0}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state")
			keep := func(cfg *Config) { cfg.StatePath = path }
			first := newCrew(t, c.ranks[0], c.world[0], 12, keep)
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(first.train(place{}, c.at))
			saved, err := first.save(c.at)
			must(err)
			onDisk, err := os.ReadFile(path)
			must(err)
			snap, err := protocol.DecodeSnapshot(onDisk)
			if err != nil || saved.Saved != path || snap.Digest() != saved.State {
				t.Fatalf("the trainers received %+v, and the file has %v (%v)", saved,
					snap.Digest(), err)
			}
			trained := len(first.stream)
			end := place{
				c.at.epoch + (c.at.batch+c.more)/batchesOf,
				(c.at.batch + c.more) % batchesOf,
			}
			if c.again {
				end = c.late
			}
			must(first.train(c.at, end))
			if c.again {
				_, err := first.save(c.late)
				must(err)
			}

			second := newCrew(t, c.ranks[1], c.world[1], 12, keep)
			for _, tr := range second.trainers {
				tr.training = protocol.Training{
					Life: 7,
					Checkpoint: &protocol.Checkpoint{
						Epoch: c.at.epoch, Batch: c.at.batch,
						State: saved.State,
					},
				}
				must(tr.open("pads", second.batch))
			}
			must(second.train(c.at, place{epochs, 0}))
			compareStreams(t, append(first.stream[:trained:trained], second.stream...), want)
		})
	}
}

// TestCheckpointOutlivesKills resumes, is killed before another checkpoint is made, and resumes
// again.
func TestCheckpointOutlivesKills(t *testing.T) {
	want := reference(t, 4)
	path, at := filepath.Join(t.TempDir(), "state"), place{1, 7}
	keep := func(cfg *Config) { cfg.StatePath = path }
	saved := newCrew(t, 2, 2, 12, keep).trainAndSave(at)
	for _, ranks := range []int{1, 2, 1} {
		again := newCrew(t, ranks, 2, 12, keep)
		again.openFrom(at, saved.State)
		again.at[place{2, 3}] = func() { again.restart(nothing) }
		if err := again.train(at, place{4, 0}); err != nil {
			t.Fatal(err)
		}
		compareStreams(t, again.stream, want[at.epoch*batchesOf+at.batch:])
	}
}

// TestForeignStatesEndTraining resumes with a state file that was damaged, or is another
// training's, or is gone.
func TestForeignStatesEndTraining(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "state"), place{1, 7}
	keep := func(cfg *Config) { cfg.StatePath = path }
	saved := newCrew(t, 1, 1, 12, keep).trainAndSave(at)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	resume := func(what, want string, optional bool) {
		t.Helper()
		c := newCrew(
			t, 2, 2, 12, func(cfg *Config) { cfg.StatePath, cfg.StateOptional = path, optional })
		c.openFrom(at, saved.State)
		err := c.train(at, place{2, 0})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if want != "" && len(c.stream) > 0 {
			t.Errorf("%s: %d batches were trained", what, len(c.stream))
		}
	}
	put := func(data []byte) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, data, 0o600),
			os.RemoveAll(training.PreviousState(path))); err != nil {
			t.Fatal(err)
		}
	}
	const refused = "training on data set train would not continue with the same batches: "
	for i := range 40 {
		flipped := slices.Clone(whole)
		flipped[(len(flipped)-1)*i/39] ^= 0x20
		put(flipped)
		resume(fmt.Sprint("flipped ", i), refused, false)
	}
	put(whole[:len(whole)/2])
	resume("cut off", refused, false)
	put(nil)
	resume("empty", refused, false)
	resume("empty, but optional", "", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	resume("missing", "importance state "+path+" does not exist", false)
	resume("missing, but optional", "", true)

	other := newCrew(t, 1, 1, 12, keep) // the same stream, other losses
	put(nil)
	_ = os.Remove(path)
	other.told[0] = nil
	other.at[place{0, 3}] = func() {
		other.cluster.nodes[0].coordinating(doubled)
	}
	if err := other.train(place{}, at); err != nil {
		t.Fatal(err)
	}
	if _, err := other.save(at); err != nil {
		t.Fatal(err)
	}
	resume("another training's", "belongs to another importance state than", false)
	resume("another training's, but optional", "", true)
}

// TestTrainersResumeFromTheSame makes one trainer resume from another checkpoint than the others,
// or from none.
func TestTrainersResumeFromTheSame(t *testing.T) {
	for _, other := range []*protocol.Checkpoint{
		nil,
		{Epoch: 1, Batch: 3, State: "aa"},
		{Epoch: 1, Batch: 7, State: "bb"},
	} {
		c := newCrew(t, 2, 2, 12, func(cfg *Config) { cfg.StateOptional = true })
		c.trainers[0].training.Checkpoint = &protocol.Checkpoint{Epoch: 1, Batch: 7, State: "aa"}
		c.trainers[1].training.Checkpoint = other
		for _, tr := range c.trainers {
			if err := tr.open("torch", 6); err == nil {
				t.Error("another sampler was taken")
			}
			if err := tr.open("pads", 6); err != nil {
				t.Fatal(err)
			}
		}
		err := c.train(place{1, 7}, place{2, 0})
		if err == nil || !strings.Contains(err.Error(), "resumes from") {
			t.Errorf("%v", err)
		}
	}
}

// TestLivesOnOneCache trains, and then again on the same ranks: from the beginning, or from a
// checkpoint.
func TestLivesOnOneCache(t *testing.T) {
	want := reference(t, 3)
	for _, ranks := range []int{1, 2} {
		path, at := filepath.Join(t.TempDir(), "state"), place{1, 7}
		c := newCrew(t, ranks, 2, 12, func(cfg *Config) { cfg.StatePath = path })
		if err := c.train(place{}, at); err != nil {
			t.Fatal(err)
		}
		saved, err := c.save(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.train(at, place{2, 5}); err != nil {
			t.Fatal(err)
		}
		anew := func(life uint64, checkpoint *protocol.Checkpoint) {
			t.Helper()
			c.stream = nil
			for _, tr := range c.trainers {
				tr.training = protocol.Training{Life: life, Checkpoint: checkpoint}
				if err := tr.open("pads", c.batch); err != nil {
					t.Fatal(err)
				}
			}
		}
		anew(1, &protocol.Checkpoint{Epoch: at.epoch, Batch: at.batch, State: saved.State})
		if err := c.train(at, place{3, 0}); err != nil {
			t.Fatal(err)
		}
		compareStreams(t, c.stream, want[at.epoch*batchesOf+at.batch:])
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		anew(2, nil)
		if err := c.train(place{}, place{3, 0}); err != nil {
			t.Fatal(err)
		}
		compareStreams(t, c.stream, want)
	}
}

// TestBegunAnewBeforeACheckpoint ends a training before its first checkpoint, and begins it again
// with its state file.
func TestBegunAnewBeforeACheckpoint(t *testing.T) {
	want := reference(t, 3)
	path := filepath.Join(t.TempDir(), "state")
	keep := func(cfg *Config) { cfg.StatePath = path }
	for _, end := range []place{{0, 5}, {2, 3}} {
		first := newCrew(t, 2, 2, 12, keep)
		if err := first.train(place{}, end); err != nil {
			t.Fatal(err)
		}
		first.cluster.nodes[0].SaveImportance(t.Context())
		again := newCrew(t, 1, 2, 12, keep)
		if err := again.train(place{}, place{3, 0}); err != nil {
			t.Fatal(err)
		}
		compareStreams(t, again.stream, want)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSaveAnswersDoNotDepend checks that a place has one digest, whatever the ranks and trainers,
// and that another training has another.
func TestSaveAnswersDoNotDepend(t *testing.T) {
	seen := map[place]protocol.Digest{}
	for _, n := range []struct{ ranks, world int }{{1, 1}, {2, 2}, {2, 4}, {4, 4}} {
		c := newCrew(t, n.ranks, n.world, 12, nil)
		from := place{}
		for _, at := range []place{{0, 1}, {0, batchesOf}, {1, 4}, {2, 0}, {2, batchesOf - 1}} {
			if err := c.train(from, at); err != nil {
				t.Fatal(err)
			}
			saved, err := c.save(at)
			if err != nil || saved.State == "" || saved.Saved != "" {
				t.Fatalf("%v: %+v, %v", at, saved, err)
			}
			if before, ok := seen[at]; ok && before != saved.State {
				t.Errorf("%d ranks, %d trainers, %v: %s, and %s before", n.ranks, n.world, at,
					saved.State, before)
			}
			seen[at] = saved.State
			if from = at; at.batch == batchesOf {
				from = place{at.epoch + 1, 0}
			}
		}
	}
	if len(slices.Compact(slices.Sorted(func(yield func(protocol.Digest) bool) {
		for _, d := range seen {
			if !yield(d) {
				return
			}
		}
	}))) != len(seen) {
		t.Errorf("two places have one digest: %v", seen)
	}
}

// TestLateOpenIsIgnored makes another connection of a trainer send, late, what the training was
// before it loaded a checkpoint.
func TestLateOpenIsIgnored(t *testing.T) {
	path, at := filepath.Join(t.TempDir(), "state"), place{1, 7}
	keep := func(cfg *Config) { cfg.StatePath = path }
	saved := newCrew(t, 2, 2, 12, keep).trainAndSave(at)
	second := newCrew(t, 2, 2, 12, keep)
	before := second.trainers[0].training
	for _, tr := range second.trainers {
		tr.training.Turn, tr.training.Checkpoint = 1,
			&protocol.Checkpoint{Epoch: at.epoch, Batch: at.batch, State: saved.State}
		if err := tr.open("pads", second.batch); err != nil {
			t.Fatal(err)
		}
	}
	sentinel, err := second.cluster.trainer(second.trainers[0].rank, second.trainers[0].world)
	if err != nil {
		t.Fatal(err)
	}
	defer sentinel.close()
	sentinel.training = before
	if err := sentinel.open("pads", second.batch); err != nil {
		t.Fatal(err)
	}
	if err := second.train(at, place{3, 0}); err != nil {
		t.Fatal(err)
	}
	compareStreams(t, second.stream, reference(t, 3)[at.epoch*batchesOf+at.batch:])
}

// TestAnotherTrainerHasThePlan restarts the ranks when one trainer has the plan of the next epoch,
// and waits in a step for the other, which has yet to get it.
func TestAnotherTrainerHasThePlan(t *testing.T) {
	c := newCrew(t, 2, 2, 12, nil)
	if err := c.train(place{}, place{1, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.trainers[1].plan(1); err != nil {
		t.Fatal(err)
	}
	c.restart(nothing)
	if _, err := c.trainers[0].plan(1); err != nil {
		t.Fatal(err)
	}
	if err := c.train(place{1, 0}, place{3, 0}); err != nil {
		t.Fatal(err)
	}
	compareStreams(t, c.stream, reference(t, 3))
}

// doubled doubles the scores that a rank makes plans from.
func doubled(c *protocol.Coordinator) {
	for id := range c.Ledger().Scores() {
		c.Ledger().Scores()[id] *= 2
	}
}
