package draw

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// thriftySampler draws so that at most the share Reads of the draws are reads, with a store that
// has Room times the size of the data set.
//
// The samples with the greatest scores, as many as the store has room for, are kept and drawn
// often, all at the same rate. Every other sample waits after a draw for a time in proportion to
// 1/score, at most thriftyWait epochs, and is then read. A sample whose score has become one of the
// greatest is read once more in the next epoch and kept from then on.
//
// A sample is owed 1 in each epoch, whatever its score, and the weight of a draw is half of what
// the sample is owed by then. So its weights sum to the number of epochs, less what it is still
// owed, at most 2·ThriftyGap: over time, the mean gradient is that of uniform draws. Half, because
// a sample that was drawn rarely and turns out to matter is then kept, and the rest is paid in
// small parts.
//
// Which samples are kept is the sampler's own book, not what ranks hold, so it is part of the
// stream. The first epoch has all samples in the order of the sampler uniform. If Reads is 1, all
// epochs do.
//
// Source: Neyman, "Contribution to the Theory of Sampling Human Populations", JASA 1938: the more a
// draw is worth and the less it costs, the more often. Differs: a weight is not 1/(N p), p the
// sample's probability given what was drawn before it; that is unbiased in each draw, but varies so
// much that accuracy falls.
type thriftySampler struct {
	uniform uniformSampler
	race
	floor, reads, room float64
	length             float64      // of an epoch, in the time of as many draws as there are samples
	book               *thriftyBook // at the beginning of the epoch; nil: before the first
}

// A thriftyBook says, by sample, how long ago it was drawn, what it is owed, and whether it is
// kept.
type thriftyBook struct {
	ages, owed []float32
	kept       []bool
}

const (
	// ThriftyGap is the time, in epochs, for which no sample is undrawn, but for the hundredths by
	// which an epoch may be longer than planned; so it is undrawn in at most 5 epochs.
	ThriftyGap = thriftyWait*(1+thriftyJitter) + thriftyOverdue

	thriftyWait    = 5.2
	thriftyJitter  = 0.05 // a wait is up to this share shorter or longer
	thriftyOverdue = 0.25 // epochs in which a sample is drawn whose wait became shorter than its age
	thriftyLeast   = 0.5  // epochs, the shortest wait
	thriftyEnter   = 0.75 // epochs, the least age at which a sample is read to be kept

	// thriftyShare is the share of the store that is planned for: ranks keep unequal parts.
	thriftyShare = 0.98
	// thriftyAim is how much of Reads is planned for: the length of an epoch varies.
	thriftyAim = 0.98
	// thriftyStay is added to the scores of kept samples, which are 1 on average, so that fewer of
	// them are replaced.
	thriftyStay = 1

	thriftyReads = 0.25 // the defaults of Reads and Room
	thriftyRoom  = 0.2
)

// Thrifty is the name of the sampler that depends on the memory of all ranks.
const Thrifty = "thrifty"

// A Resumer is a Sampler whose draws depend on its state after the epoch before, which its Draws
// return as After. It is not safe for concurrent use.
type Resumer interface {
	Sampler
	// Start returns the state before the first epoch.
	Start() []byte
	// Resume sets the state for the next call of Draw. It keeps no reference; nil is Start's. It
	// returns an error if the state is damaged, or that of other samples.
	Resume(state []byte) error
}

func newThriftySampler(cfg SamplerConfig) Sampler {
	s := &thriftySampler{
		uniform: uniformSampler{cfg.race()}, race: cfg.race(), floor: cfg.floor(),
		reads: cmp.Or(cfg.Reads, thriftyReads), room: cmp.Or(cfg.Room, thriftyRoom),
	}
	draws := int(cmp.Or(cfg.Fraction, 1) * float64(cfg.Samples))
	s.draws = wholeBatches(draws, cfg.globalBatch(), cfg.DropLast)
	s.length = float64(s.draws) / float64(s.samples)
	return s
}

func (s *thriftySampler) Weighted() bool { return s.reads < 1 }

// Start implements Resumer.
func (s *thriftySampler) Start() []byte { return thriftyState(s.room, nil) }

// Resume implements Resumer. The state is Room, and after the first epoch the book.
func (s *thriftySampler) Resume(state []byte) error {
	s.book = nil
	if state == nil {
		return nil
	}
	le, n := binary.LittleEndian, s.samples
	if len(state) != 8 && len(state) != 8+9*n {
		return fmt.Errorf("scheduler: the sampler thrifty cannot resume %d samples from %d bytes",
			n, len(state))
	}
	s.room = math.Float64frombits(le.Uint64(state))
	if len(state) == 8 {
		return nil
	}
	b := newThriftyBook(n)
	for i := range n {
		b.ages[i] = math.Float32frombits(le.Uint32(state[8+4*i:]))
		b.owed[i] = math.Float32frombits(le.Uint32(state[8+4*(n+i):]))
		b.kept[i] = state[8+8*n+i] == 1
		if !(b.ages[i] >= 0 && b.ages[i] < math.MaxInt32 && b.owed[i] >= 0) {
			return fmt.Errorf("scheduler: the sampler thrifty cannot resume: sample %d was last "+
				"drawn %v epochs ago and is owed %v", i, b.ages[i], b.owed[i])
		}
	}
	s.book = b
	return nil
}

func newThriftyBook(samples int) *thriftyBook {
	return &thriftyBook{
		make([]float32, samples), make([]float32, samples), make([]bool, samples),
	}
}

// thriftyState encodes what Resume takes.
func thriftyState(room float64, b *thriftyBook) []byte {
	state := binary.LittleEndian.AppendUint64(nil, math.Float64bits(room))
	if b == nil {
		return state
	}
	state = slices.Grow(state, 9*len(b.ages))
	for _, numbers := range [][]float32{b.ages, b.owed} {
		for _, x := range numbers {
			state = binary.LittleEndian.AppendUint32(state, math.Float32bits(x))
		}
	}
	for _, kept := range b.kept {
		bit := byte(0)
		if kept {
			bit = 1
		}
		state = append(state, bit)
	}
	return state
}

// Draw implements Sampler.
func (s *thriftySampler) Draw(epoch int, scores []float32) *Draws {
	if s.reads == 1 {
		return s.uniform.Draw(epoch, nil)
	}
	f := &thriftyForecast{
		sampler: *s, epoch: epoch, after: newThriftyBook(s.samples),
		rates: newRates(scores, s.samples, float64(s.samples), s.floor),
	}
	f.before = s.book
	d := &Draws{Epoch: epoch, Sum: f.rates.sum, forecast: f}
	if s.book == nil {
		f.before = newThriftyBook(s.samples)
		d.IDs = s.uniform.Draw(epoch, nil).IDs
		for i, id := range d.IDs {
			f.after.ages[id] = float32(s.length) * (1 - float32(i+1)/float32(len(d.IDs)))
		}
		copy(f.after.owed, f.after.ages)
		f.choose()
	} else {
		f.choose()
		d.IDs, d.weights = f.draw()
	}
	d.after = thriftyState(s.room, f.after)
	return d
}

// thriftyForecast is an epoch's choice of samples to keep, and the book before and after it.
type thriftyForecast struct {
	sampler       thriftySampler
	epoch         int
	rates         rates
	before, after *thriftyBook

	least   float32  // the least value that is kept, see value
	lastTie SampleID // the last sample kept of those with this value
	often   float64  // rate of a kept sample's draws
	pace    float64  // a sample of score 1 waits 1/pace
}

// A thriftySample is a sample as the book has it, with its lifted score.
type thriftySample struct {
	id        SampleID
	score     float32
	age, owed float64
	kept      bool
}

func (b *thriftyBook) sample(id SampleID, lifted float32) thriftySample {
	return thriftySample{id, lifted, float64(b.ages[id]), float64(b.owed[id]), b.kept[id]}
}

// sample returns a sample at the beginning of the epoch.
func (f *thriftyForecast) sample(id SampleID) thriftySample {
	return f.before.sample(id, f.rates.scores[id])
}

// value is what samples are compared by: the greatest values are kept.
func (f *thriftyForecast) value(s thriftySample) float32 {
	v := float32(f.rates.of(s.score))
	if s.kept {
		v += thriftyStay
	}
	return v
}

func (f *thriftyForecast) keeps(s thriftySample) bool {
	v := f.value(s)
	return v > f.least || v == f.least && s.id <= f.lastTie
}

// choose sets what is kept in the epoch, and how long other samples wait.
func (f *thriftyForecast) choose() {
	s := f.sampler
	values := make([]float32, s.samples)
	for id := range values {
		values[id] = f.value(f.sample(SampleID(id)))
	}
	keep := int(thriftyShare * s.room * float64(s.samples))
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	f.least, f.lastTie = math.MaxFloat32, 0
	if keep > 0 {
		f.least = sorted[s.samples-keep]
	}
	ties := keep - (s.samples - upper(sorted, f.least))
	enter := 0
	for id, v := range values {
		if v == f.least && ties > 0 {
			ties--
			f.lastTie = SampleID(id)
		}
		if of := f.sample(SampleID(id)); !of.kept && f.keeps(of) {
			enter++
		}
	}
	reads := float64(thriftyAim * s.reads * float64(s.draws))
	f.often = 1 // those that enter are kept for half of the epoch
	if kept := float64(keep) - float64(enter)/2; kept > 0 {
		f.often = max(1, (float64(s.draws)-reads)/float64(kept*s.length))
	}
	f.setPace(reads - float64(enter))
}

// upper returns how many of some sorted numbers are at most x.
func upper(sorted []float32, x float32) int {
	n, _ := slices.BinarySearch(sorted, math.Nextafter32(x, math.MaxFloat32))
	return n
}

// setPace sets the pace at which about as many samples that are not kept are drawn in the epoch as
// there are reads. It looks at some of the samples where there are many.
func (f *thriftyForecast) setPace(reads float64) {
	const some, rounds = 1 << 16, 40
	s := f.sampler
	step := (s.samples + some - 1) / some
	low, high := 0x1p-20, 0x1p20
	for range rounds {
		f.pace = math.Sqrt(float64(low * high))
		drawn := 0.0
		for id := SampleID(0); int(id) < s.samples; id += SampleID(step) {
			if of := f.sample(id); !f.keeps(of) {
				from, to := f.due(of)
				drawn += min(max((of.age+s.length-from)/(to-from), 0), 1)
			}
		}
		if drawn*float64(step) > reads {
			high = f.pace
		} else {
			low = f.pace
		}
	}
}

// due returns between which ages a sample that is not kept is drawn, each as likely as another. One
// that was last drawn by the first epoch, and so is owed its age, may be drawn at once, so that not
// all of them wait at first.
func (f *thriftyForecast) due(s thriftySample) (from, to float64) {
	g := f.rates.of(s.score)
	wait := min(max(1/float64(f.pace*g), thriftyLeast), thriftyWait)
	if s.owed != s.age {
		from = float64(wait * (1 - thriftyJitter))
	}
	from = max(from, s.age)
	return from, max(float64(wait*(1+thriftyJitter)), from+thriftyOverdue)
}

// wait returns the time to the next draw of a sample.
func (f *thriftyForecast) wait(s thriftySample, random uint64) float64 {
	switch {
	case !f.keeps(s):
		from, to := f.due(s)
		return from + float64(uniform(random)*(to-from)) - s.age
	case !s.kept:
		from := max(s.age, thriftyEnter)
		return from + float64(uniform(random)*thriftyOverdue) - s.age
	}
	return exponential(random) / f.often
}

// draw returns the draws in order, with their weights, and sets the book after them.
func (f *thriftyForecast) draw() (ids []SampleID, weights []float32) {
	s := f.sampler
	horizon := 1.2 * s.length
	for {
		words := newTimeSorter(int(horizon*float64(s.samples)),
			func(key uint32) float64 { return keyTime(key) / horizon })
		for id := range SampleID(s.samples) {
			f.arrivals(id, horizon, words)
		}
		if words.n >= s.draws {
			return f.walk(words)
		}
		horizon *= 2
	}
}

// arrivals adds a word for each draw of a sample before the horizon.
func (f *thriftyForecast) arrivals(id SampleID, horizon float64, words *timeSorter) {
	clock, s := f.sampler.clocks.epoch(f.epoch), f.sample(id)
	after := thriftySample{id: id, score: s.score, owed: 1} // once it is drawn
	at := f.wait(s, clock.bits(id, 0))
	for k := uint32(1); at < horizon; k++ {
		words.add(uint64(timeKey(at))<<32 | uint64(id))
		if f.keeps(s) {
			at += exponential(clock.bits(id, k)) / f.often
		} else {
			at += f.wait(after, clock.bits(id, k))
		}
	}
}

// walk follows the draws in the order of time, in epochs.
func (f *thriftyForecast) walk(words *timeSorter) (ids []SampleID, weights []float32) {
	s := f.sampler
	ids, times := make([]SampleID, 0, s.draws), make([]float64, 0, s.draws)
	for sorted := range words.sorted {
		for _, w := range sorted[:min(len(sorted), s.draws-len(ids))] {
			ids, times = append(ids, SampleID(w)), append(times, keyTime(uint32(w>>32)))
		}
	}
	weights = make([]float32, len(ids))
	last := make([]float64, s.samples) // time of the last draw, 0: none in this epoch
	copy(f.after.owed, f.before.owed)
	scale := s.length / times[len(times)-1]
	for i, id := range ids {
		at := float64(times[i] * scale)
		weights[i] = float32((float64(f.after.owed[id]) + at - last[id]) / 2)
		f.after.owed[id], last[id] = weights[i], at
	}
	for id, at := range last {
		drawn, left := at > 0, float32(s.length-at)
		f.after.ages[id] = left
		if !drawn {
			f.after.ages[id] += f.before.ages[id]
		}
		f.after.owed[id] += left
		of := f.sample(SampleID(id))
		f.after.kept[id] = (of.kept || drawn) && f.keeps(of)
	}
	return ids, weights
}

func (f *thriftyForecast) next(id SampleID, score float32) float64 {
	s, length := f.after.sample(id, f.rates.lift.of(score)), f.sampler.length
	return firstEpoch(f.epoch, thriftyWait, func(epoch int) float64 {
		wait := f.wait(s, f.sampler.clocks.epoch(epoch).bits(id, 0))
		s.age += length
		s.owed += length
		return wait / length
	})
}

// weight is that of a draw at the sample's mean rate.
func (f *thriftyForecast) weight(id SampleID) float32 {
	if !f.weighted() {
		return 1
	}
	s := f.sample(id)
	if f.keeps(s) {
		return float32(1 / f.often)
	}
	from, to := f.due(thriftySample{id: id, score: s.score, owed: 1})
	return float32((from + to) / 2)
}

func (f *thriftyForecast) weighted() bool { return f.sampler.book != nil }
