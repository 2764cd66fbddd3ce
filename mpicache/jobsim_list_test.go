package mpicache

import (
	"math/rand/v2"
	"slices"

	"rankpool/mpicache/door"
	"rankpool/scheduler/draw"
)

// listed reports whether the trainers hand in what they draw.
func (c *simConfig) listed() bool { return c.sampler == draw.InList }

// global returns what the scripts draw in an epoch, by global batch: batches of any lengths, with
// repeated samples. Before batch shared each trainer has a part of them, and then only the first.
func (c *simConfig) global(epoch int) (batches [][]uint32, shared int) {
	rng := rand.New(rand.NewPCG(uint64(epoch), 1))
	for range c.samples / simGlobalBatch {
		batch := make([]uint32, simGlobalBatch/2+rng.IntN(simGlobalBatch+1))
		for i := range batch {
			batch[i] = uint32(rng.IntN(c.samples))
		}
		batches = append(batches, batch)
	}
	return batches, min(rng.IntN(2*len(batches)), len(batches))
}

// list returns the batches that the script of a trainer draws in an epoch.
func (c *simConfig) list(epoch, trainer int) (batches [][]uint32) {
	all, shared := c.global(epoch)
	for b, ids := range all {
		var own []uint32
		for i, id := range ids {
			if b < shared && i%c.world() == trainer || b >= shared && trainer == 0 {
				own = append(own, id)
			}
		}
		if own != nil {
			batches = append(batches, own)
		}
	}
	return batches
}

// listedStream is stream, of trainers that hand in what they draw.
func (c *simConfig) listedStream() (all [][][]uint32) {
	for epoch := range c.epochs {
		batches, _ := c.global(epoch)
		for _, ids := range batches {
			slices.Sort(ids)
		}
		all = append(all, batches)
	}
	return all
}

// simListed is what a trainer has handed in of the epoch after the one that it trains.
type simListed struct {
	epoch   int
	batches [][]uint32
}

// handIn hands in what the script will train on: it confirms what was handed in ahead, or replaces
// it.
func (t *simTrainer) handIn() {
	batches := t.job.cfg.list(t.epoch, t.number)
	if t.ahead.epoch != t.epoch || !slices.EqualFunc(t.ahead.batches, batches, slices.Equal) {
		t.sendList(t.epoch, batches, 0)
		return
	}
	epoch := t.epoch
	t.call(door.KindList, u32s(0, uint32(epoch), 0, 0, 0), func(f door.Frame, ok bool) {
		switch code, sentence := simRefusal(f); {
		case !ok:
		case code == door.CodeNotReady: // the cache was started again
			t.sendList(epoch, batches, 0)
		case code != 0:
			t.fail(sentence)
		}
	})
}

// handInAhead hands in what the script expects to draw in the next epoch; it is wrong now and then.
func (t *simTrainer) handInAhead() {
	if t.epoch+1 == t.job.cfg.epochs || t.job.clock.chance(4) {
		return
	}
	batches := t.job.cfg.list(t.epoch+1, t.number)
	if t.job.clock.chance(3) {
		batches = t.job.cfg.list(t.epoch+100, t.number)
	}
	t.ahead = simListed{t.epoch + 1, batches}
	t.sendList(t.epoch+1, batches, door.ListAhead)
}

// handInAgain tells a rank that was started again, or may have been, what it has forgotten.
func (t *simTrainer) handInAgain() {
	if t.parts != nil {
		t.sendList(t.epoch, t.job.cfg.list(t.epoch, t.number), 0)
	}
	if t.ahead.epoch == t.epoch+1 {
		t.sendList(t.ahead.epoch, t.ahead.batches, door.ListAhead)
	}
}

// sendList sends a part of an epoch in small pieces.
func (t *simTrainer) sendList(epoch int, batches [][]uint32, flags uint32) {
	numbers := []uint32{uint32(len(batches))}
	for _, ids := range batches {
		numbers = append(numbers, uint32(len(ids)))
	}
	for _, ids := range batches {
		numbers = append(numbers, ids...)
	}
	first := uint32(0)
	for piece := range slices.Chunk(numbers, 50) {
		head := u32s(0, uint32(epoch), flags, uint32(len(numbers)), first)
		t.call(door.KindList, append(head, u32s(piece...)...), func(f door.Frame, ok bool) {
			if code, sentence := simRefusal(f); ok && code != 0 {
				t.fail(sentence)
			}
		})
		first += uint32(len(piece))
	}
}
