package mpicache

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"rankpool/mpicache/door"
	"rankpool/scheduler/protocol"
)

// A crew is the trainers of a training, in step with each other. Each does what the Python client
// does: it keeps its reports of three epochs, and sends them to a restarted cache.
type crew struct {
	t        *testing.T
	cluster  *cluster
	ranks    int
	batch    int    // of one trainer
	sampler  string // "": pads
	edit     func(*Config)
	trainers []*trainer
	told     [][]toldReport
	stream   []string // global batches
	at       map[place]func()
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
		if err := tr.open(cmp.Or(c.sampler, "pads"), c.batch); err != nil {
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

// restart ends the ranks as a signal does, and starts them again, under these crews.
func (c *crew) restart(all ...*crew) {
	c.t.Helper()
	for _, d := range all {
		d.leave()
	}
	c.cluster.kill()
	dirs := c.cluster.dirs
	next := func() string {
		dir := dirs[0]
		dirs = dirs[1:]
		return dir
	}
	ranks := newClusterIn(c.t, next, c.ranks, crewSamples, 3000, c.edit)
	for _, d := range all {
		d.cluster = ranks
		d.connect()
	}
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
	if tr.embeddings > 0 {
		report = append(report, u32s(uint32(tr.embeddings))...)
		for _, id := range want {
			report = append(report, u32s(0x3f000000+id%7<<20, 0x3f000000+id*id%240<<14)...)
		}
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
