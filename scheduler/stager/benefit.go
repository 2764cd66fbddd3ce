package stager

import (
	"math/bits"
	"time"
)

// Benefit is the state machine that measures what caching is worth to a training on this rank: how
// much longer a batch takes when storage has to be read for all of it. To measure it, a stretch of
// an epoch is delivered only when its samples that were in memory have been read from storage once
// more; the rest of the epoch shows how long batches take with the cache. Training gets the bytes
// in memory, so measuring changes no stream. It performs no I/O and has no clock: the rank passes
// the times. It is not safe for concurrent use.
//
// Benefit times when batches are complete in memory, not when trainers request them: batches that
// were read ahead would hide slow storage for as long as they last. Otherwise both have the same
// pace, since the window follows the trainers.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3 (100 batches without the cache); Chen et
// al., "iCACHE", HPCA 2023, §III-D (20 without, 20 with). Differs: the whole rest of the epoch is
// timed with the cache. MIN keeps what is drawn soonest, so an epoch may begin with hits only and
// end with misses.
type Benefit struct {
	slot     int
	trainers int // of this rank
	epochs   int // that have begun
	due      bool

	epoch int // being measured
	probe Probe
	timed []timed // the batches of probe.timed
	first Measured
	last  Measured
}

// Probe is the range of batches of an epoch that is timed: [First, Last], without those that enter
// the window before the previous epoch has ended. All samples of the batches in [Begin, End) are
// read from storage. The zero Probe is empty.
type Probe struct{ First, Begin, End, Last int }

// timed is a batch whose completion is timed.
type timed struct {
	batch   int
	missing int // trainers of this rank whose part is not complete
	at      time.Duration
}

// Measured is what was measured.
type Measured struct {
	Epoch         int
	With, Without time.Duration // of a global batch; 0: nothing was measured
}

const (
	// probeMost is the largest number of batches in the stretch: Quiver's (§5.3).
	probeMost = 100
	// probeShare is the largest share of an epoch that the stretch may be.
	probeShare = 1. / 20
	// probeLeast is the number of batches below which nothing is measured: a batch may be complete a
	// few reads earlier or later than its turn.
	probeLeast = 8
	// probeSlots is how many trainings are measured in an epoch, if they train in step: one after
	// the other, since each slows down the others' reads.
	probeSlots = 4
	// gainLeast is the benefit below which a training counts as gaining nothing from the cache: the
	// measured benefit is within a tenth of what separate runs show.
	gainLeast = 1.1
)

// NewBenefit returns the state machine of a training with the given number of trainers on this
// rank. Trainings with different slots are measured at different times, if they train in step.
func NewBenefit(slot, trainers int) *Benefit { return &Benefit{slot: slot, trainers: trainers} }

// Begin begins an epoch, whose batches [from, batches) are trained, and returns the batches to
// time. The epoch before may still be under way. A training is measured in its second epoch on this
// rank, since memory is filled then, and again in the 8th, 32nd and so on, since the load on
// storage may have changed; with slots 4 to 7 one epoch later, with 8 to 11 two, and so on. If may
// is false, or the beginning of the epoch is not trained, the training is measured in a later
// epoch: plans may be made before another training begins.
func (b *Benefit) Begin(epoch, from, batches int, may bool) Probe {
	b.epochs++
	number := b.epochs - b.slot/probeSlots
	b.due = b.due || measuredIn(number)
	n := min(probeMost, int(probeShare*float64(batches)))
	first := aheadOf(batches)
	if !may || b.trainers == 0 || n < probeLeast || from > first || !b.due {
		return Probe{}
	}
	b.due = false
	begin := batches/8 + b.slot%probeSlots*batches*3/16
	b.epoch, b.probe = epoch, Probe{First: first, Begin: begin, End: begin + n, Last: batches - 1}
	b.timed = b.timed[:0]
	for _, batch := range b.probe.timed() {
		b.timed = append(b.timed, timed{batch: batch, missing: b.trainers})
	}
	return b.probe
}

// measuredIn reports whether an epoch is the 2nd, 8th, 32nd or so on.
func measuredIn(number int) bool {
	return number > 0 && bits.OnesCount(uint(number)) == 1 && bits.TrailingZeros(uint(number))%2 == 1
}

// Ready records when a local trainer's part of a batch was complete. It returns true if the benefit
// is known now.
func (b *Benefit) Ready(epoch, batch int, at time.Duration) (known bool) {
	if b.probe == (Probe{}) || epoch != b.epoch {
		return false
	}
	missing := 0
	for i := range b.timed {
		t := &b.timed[i]
		if t.batch == batch && t.missing > 0 {
			t.missing--
			t.at = max(t.at, at)
		}
		missing += t.missing
	}
	if missing > 0 {
		return false
	}
	p, last := b.probe, len(b.timed)-1
	b.probe = Probe{}
	stretch := b.timed[1:last]
	n := len(stretch) - 1
	m := Measured{
		Epoch: epoch, Without: pace(stretch),
		With: (b.timed[last].at - b.timed[0].at - (stretch[n].at - stretch[0].at)) /
			time.Duration(p.Last-p.First-n),
	}
	if m.With <= 0 || m.Without <= 0 { // batches were not complete in their order
		b.due = true
		return false
	}
	if b.last = m; b.first.With <= 0 {
		b.first = m
	}
	return true
}

// Gain is b·n, where b is the first benefit that was measured, when memory was not yet divided by
// it, and n the number of trainers of the job. It is 0 if the training gains nothing, and -1 if b
// is unknown.
func (b *Benefit) Gain(trainers int) float64 {
	switch {
	case b.first.With <= 0:
		return -1
	case !b.first.Gains():
		return 0
	}
	return b.first.Ratio() * float64(trainers)
}

// Measured returns what was measured last.
func (b *Benefit) Measured() Measured { return b.last }

// Ratio is the benefit, b = t_m/t_h, and 0 if it is unknown.
//
// Source: Quiver, §5.3; iCACHE's Ratio_benefit, §III-D.
func (m Measured) Ratio() float64 {
	if m.With <= 0 {
		return 0
	}
	return float64(m.Without) / float64(m.With)
}

// Gains reports whether the training is faster with the cache, as far as is known.
func (m Measured) Gains() bool { return m.With <= 0 || m.Ratio() >= gainLeast }

// pace returns how long a batch takes, by a least-squares line through all completions. A client
// requests several batches at once, so they enter the window, and are complete, several at a time:
// in a stretch of ten, the time from the first to the last may be wrong by one batch in nine.
func pace(batches []timed) time.Duration {
	middle := float64(len(batches)-1) / 2
	up, across := 0., 0.
	for i, t := range batches {
		x := float64(i) - middle
		up += x * float64(t.at-batches[0].at)
		across += x * x
	}
	return time.Duration(up / across)
}

// timed are the batches whose completion is timed: the first and the last of all, and between them
// those of the stretch.
func (p Probe) timed() []int {
	batches := []int{p.First}
	for b := p.Begin; b < p.End; b++ {
		batches = append(batches, b)
	}
	return append(batches, p.Last)
}

// times reports whether a batch's completion is timed.
func (p Probe) times(batch int) bool {
	return p != (Probe{}) && (batch == p.First || p.rereads(batch) || batch == p.Last)
}

// rereads reports whether all samples of a batch are read from storage.
func (p Probe) rereads(batch int) bool { return batch >= p.Begin && batch < p.End }
