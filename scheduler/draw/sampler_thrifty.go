package draw

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// thriftySampler draws so that about the share Reads of the draws are reads, with a store that has
// Room times the size of the data set.
//
// A sample that is read is drawn 1/Reads times while it is in the store, at nearly equal distances,
// and then waits outside it for a time in proportion to 1/score, at most thriftyWait epochs.
//
// A sample is owed 1 in each epoch, whatever its score. When it is read, what it is owed is paid as
// the weights of the draws until it leaves the store, in equal parts. So its weights sum to the
// number of epochs, less what it is still owed: over time, the mean gradient is that of uniform
// draws. All weights of an epoch are then scaled so that their mean is 1, as if samples had waited
// for as long before the first epoch.
//
// What is in the store is the sampler's own book, not what ranks hold, so it is part of the stream.
// The first epoch has all samples in the order of the sampler uniform; with Reads 1 all epochs do.
// With AutoReads, an epoch has somewhat more reads than the one before if Draws.Variance was above
// 1, fewer if it was below.
//
// Source: Choi et al., "Faster Neural Network Training with Data Echoing", arXiv 1907.05550, for
// several uses of a sample that was read; Neyman, "Contribution to the Theory of Sampling Human
// Populations", JASA 1938, for how often: the more a draw is worth, the more. Differs: a weight is
// not 1/(N p), p the sample's probability given what was drawn before it; that is unbiased in each
// draw, but varies so much that accuracy falls.
type thriftySampler struct {
	uniform uniformSampler
	race
	floor, reads, room float64
	auto               bool
	length             float64      // of an epoch, in the time of as many draws as there are samples
	book               *thriftyBook // at the beginning of the epoch; nil: before the first
}

// A thriftyBook says, by sample, how long ago it was drawn, in epochs, what it is owed, and how
// often it will be drawn before it leaves the store; 0: it is outside.
type thriftyBook struct {
	ages, owed []float32
	left       []uint8
}

const (
	// ThriftyGap is the time, in epochs, for which no sample is undrawn, but for the hundredths by
	// which an epoch may be longer than planned. So a sample is undrawn in at most 5 epochs.
	ThriftyGap = 5.7

	thriftyWait    = 5.2
	thriftyJitter  = 0.1  // a wait outside the store is up to this share shorter or longer,
	thriftySpread  = 0.5  // and one in it up to this share
	thriftyOverdue = 0.75 // epochs in which a sample is read whose wait became shorter than its age
	thriftyLeast   = 0.5  // epochs, the shortest wait outside the store

	// thriftyShare is the share of the store that is planned for: ranks keep unequal parts.
	thriftyShare = 0.89
	// thriftyAim is how much of Reads is planned for: the length of an epoch varies.
	thriftyAim = 0.97

	thriftyFormat = 4 // the last byte of a state
	thriftyHead   = 16

	thriftyReads = 0.25 // the defaults of Reads and Room
	thriftyRoom  = 0.2

	// AutoReads is a SamplerConfig.Reads of as few as leave the mean gradient of an epoch as steady
	// as that of uniform draws with replacement. The first epochs have 0.25 reads a draw.
	AutoReads = -1

	// With AutoReads, reads change with this power of the variance: fewer reads may double it.
	thriftyPower = 0.3
	thriftyMost  = 0.9
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
		auto: cfg.Reads == AutoReads,
	}
	if s.auto {
		s.reads = thriftyReads
	}
	draws := int(cmp.Or(cfg.Fraction, 1) * float64(cfg.Samples))
	s.draws = wholeBatches(draws, cfg.globalBatch(), cfg.DropLast)
	s.length = float64(s.draws) / float64(s.samples)
	return s
}

func (s *thriftySampler) Weighted() bool { return s.reads < 1 }

// Start implements Resumer.
func (s *thriftySampler) Start() []byte { return s.state(s.reads, nil) }

// Resume implements Resumer. The state is Room, Reads, and after the first epoch the book.
func (s *thriftySampler) Resume(state []byte) error {
	s.book = nil
	if state == nil {
		return nil
	}
	le, n := binary.LittleEndian, s.samples
	full := thriftyHead + 9*n + 1
	if len(state) != thriftyHead && (len(state) != full || state[full-1] != thriftyFormat) {
		return fmt.Errorf("scheduler: the sampler thrifty cannot resume %d samples from %d bytes: "+
			"they are damaged, or another version of rankpool saved them", n, len(state))
	}
	s.room = math.Float64frombits(le.Uint64(state))
	if s.auto {
		s.reads = math.Float64frombits(le.Uint64(state[8:]))
	}
	if len(state) == thriftyHead {
		return nil
	}
	state = state[thriftyHead:]
	b := newThriftyBook(n)
	for i := range n {
		b.ages[i] = math.Float32frombits(le.Uint32(state[4*i:]))
		b.owed[i] = math.Float32frombits(le.Uint32(state[4*(n+i):]))
		b.left[i] = state[8*n+i]
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
		make([]float32, samples), make([]float32, samples), make([]uint8, samples),
	}
}

// state encodes what Resume takes.
func (s *thriftySampler) state(reads float64, b *thriftyBook) []byte {
	state := binary.LittleEndian.AppendUint64(nil, math.Float64bits(s.room))
	state = binary.LittleEndian.AppendUint64(state, math.Float64bits(reads))
	if b == nil {
		return state
	}
	state = slices.Grow(state, 9*len(b.ages)+1)
	for _, numbers := range [][]float32{b.ages, b.owed} {
		for _, x := range numbers {
			state = binary.LittleEndian.AppendUint32(state, math.Float32bits(x))
		}
	}
	return append(append(state, b.left...), thriftyFormat)
}

// Draw implements Sampler.
func (s *thriftySampler) Draw(epoch int, scores []float32) *Draws {
	if s.reads == 1 {
		return s.uniform.Draw(epoch, nil)
	}
	reads := max(s.reads, s.fewest())
	f := &thriftyForecast{
		sampler: *s, epoch: epoch, before: s.book, after: newThriftyBook(s.samples),
		rates: newRates(scores, s.samples, float64(s.samples), s.floor),
		uses:  min(1/reads, math.MaxUint8),
		gap:   thriftyShare * s.room / (1 - reads),
	}
	f.sampler.reads = reads
	d := &Draws{Epoch: epoch, Sum: f.rates.sum, forecast: f}
	if s.book == nil {
		d.IDs = s.uniform.Draw(epoch, nil).IDs
		f.first(d.IDs)
		f.before = f.after
		f.setPace()
	} else {
		f.setPace()
		d.IDs, d.weights = f.draw()
	}
	d.after = s.state(s.nextReads(d, scores), f.after)
	return d
}

// nextReads returns Reads of the epoch after d.
func (s *thriftySampler) nextReads(d *Draws, scores []float32) float64 {
	if !s.auto || d.weights == nil {
		return s.reads
	}
	reads := float64(s.reads * math.Pow(d.Variance(scores), thriftyPower))
	return min(max(reads, s.fewest()), thriftyMost)
}

// fewest returns the least Reads. With fewer, a sample would have more uses than fit into its time
// in the store and its longest wait outside; the store would overflow, and reads rise again.
func (s *thriftySampler) fewest() float64 {
	return min((1-float64(thriftyShare*s.room))/float64(thriftyWait*s.length), thriftyMost)
}

// thriftyForecast is how samples wait in an epoch, and the book before and after it.
type thriftyForecast struct {
	sampler       thriftySampler
	epoch         int
	rates         rates
	before, after *thriftyBook

	uses float64 // mean number of draws of a sample that is read
	gap  float64 // mean time between them, in epochs
	pace float64 // a sample of score 1 waits 1/pace outside the store
}

// A thriftySample is a sample as the book has it, with its lifted score.
type thriftySample struct {
	id    SampleID
	score float32
	age   float64
	left  uint8
	again bool // it was drawn since the first epoch
}

// sample returns a sample at the beginning of an epoch, as the book before it has it.
func (f *thriftyForecast) sample(b *thriftyBook, epoch int, id SampleID, lifted float32,
) thriftySample {
	age := float64(b.ages[id])
	since := float64(float64(epoch-1) * f.sampler.length) // the end of the first epoch
	return thriftySample{id, lifted, age, b.left[id], age < since}
}

func (f *thriftyForecast) now(id SampleID) thriftySample {
	return f.sample(f.before, f.epoch, id, f.rates.scores[id])
}

// first sets the book after the first epoch, whose last draws are in the store.
func (f *thriftyForecast) first(ids []SampleID) {
	s, b := f.sampler, f.after
	stay := float64((f.uses - 1) * f.gap * s.reads) // as much of an epoch as fits the store
	for i, id := range ids {
		age := s.length * (1 - float64(i+1)/float64(len(ids)))
		if age < stay {
			b.left[id] = uint8(1 + float64((f.uses-1)*(1-age/stay)))
		}
		b.ages[id], b.owed[id] = float32(age), float32(age)
	}
}

// setPace sets the pace at which as many samples are read in the epoch as may be. It looks at some
// of the samples where there are many.
func (f *thriftyForecast) setPace() {
	const some, rounds = 1 << 16, 24
	s := f.sampler
	step := SampleID((s.samples + some - 1) / some)
	most := float64(thriftyAim*s.reads*float64(s.draws)) / float64(step)
	low, high := 0x1p-20, 0x1p20
	for range rounds {
		f.pace = math.Sqrt(float64(low * high))
		reads := 0.0
		for id := SampleID(0); int(id) < s.samples; id += step {
			f.follow(id, s.length, func(_ float64, read bool) {
				if read {
					reads++
				}
			})
		}
		if reads > most {
			high = f.pace
		} else {
			low = f.pace
		}
	}
}

// due returns between which ages a sample is drawn, each as likely as another. One that was last
// drawn in the first epoch may be read at once, so that not all of them wait at first.
func (f *thriftyForecast) due(s thriftySample) (from, to float64) {
	if s.left > 0 {
		from = max(f.gap*(1-thriftySpread), s.age)
		return from, max(f.gap*(1+thriftySpread), from+float64(f.gap*thriftySpread))
	}
	length, g := f.sampler.length, f.rates.of(s.score)
	wait := min(max(1/float64(f.pace*g), thriftyLeast), float64(thriftyWait*length))
	if s.again {
		from = float64(wait * (1 - thriftyJitter))
	}
	from, most := max(from, s.age), float64(ThriftyGap*length)
	overdue := min(thriftyOverdue, max(most-from, thriftyJitter))
	return from, max(min(float64(wait*(1+thriftyJitter)), most), from+overdue)
}

// wait returns the time to the next draw of a sample.
func (f *thriftyForecast) wait(s thriftySample, random uint64) float64 {
	from, to := f.due(s)
	return from + float64(uniform(random)*(to-from)) - s.age
}

// drawsLeft returns how often a sample will be drawn from its next draw on, before it leaves the
// store.
func (f *thriftyForecast) drawsLeft(id SampleID, left uint8) uint8 {
	if left > 0 {
		return left
	}
	random := f.sampler.clocks.epoch(f.epoch).bits(id, math.MaxUint32)
	return uint8(min(f.uses+uniform(random), math.MaxUint8))
}

// draw returns the draws in order, with their weights, and sets the book after them.
func (f *thriftyForecast) draw() (ids []SampleID, weights []float32) {
	s := f.sampler
	horizon := 1.2 * s.length
	for {
		words := newTimeSorter(int(horizon*float64(s.samples)),
			func(key uint32) float64 { return keyTime(key) / horizon })
		for id := range SampleID(s.samples) {
			f.follow(id, horizon, func(at float64, _ bool) {
				words.add(uint64(timeKey(at))<<32 | uint64(id))
			})
		}
		if words.n >= s.draws {
			return f.walk(words)
		}
		horizon *= 2
	}
}

// follow calls drawn for each draw of a sample before the horizon, with its time, and whether it is
// a read.
func (f *thriftyForecast) follow(id SampleID, horizon float64, drawn func(at float64, read bool)) {
	clock, s := f.sampler.clocks.epoch(f.epoch), f.now(id)
	at := f.wait(s, clock.bits(id, 0))
	for k := uint32(1); at < horizon; k++ {
		drawn(at, s.left == 0)
		s = thriftySample{id: id, score: s.score, left: f.drawsLeft(id, s.left) - 1, again: true}
		at += f.wait(s, clock.bits(id, k))
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
	after := f.after
	copy(after.owed, f.before.owed)
	copy(after.left, f.before.left)
	scale, sum := s.length/times[len(times)-1], 0.0
	for i, id := range ids {
		at := min(float64(times[i]*scale), s.length) // rounding may go beyond it
		owed, left := float64(after.owed[id])+at-last[id], f.drawsLeft(id, after.left[id])
		weights[i] = float32(owed / float64(left))
		sum += float64(weights[i])
		after.owed[id] = float32(max(owed-float64(weights[i]), 0))
		after.left[id], last[id] = left-1, at
	}
	for i := range weights {
		weights[i] *= float32(float64(len(weights)) / sum)
	}
	for id, at := range last {
		left := float32(s.length - at)
		after.ages[id] = left
		if at == 0 {
			after.ages[id] += f.before.ages[id]
		}
		after.owed[id] += left
	}
	return ids, weights
}

func (f *thriftyForecast) next(id SampleID, score float32) float64 {
	s := f.sample(f.after, f.epoch+1, id, f.rates.lift.of(score))
	length := f.sampler.length
	return firstEpoch(f.epoch, thriftyWait, func(epoch int) float64 {
		wait := f.wait(s, f.sampler.clocks.epoch(epoch).bits(id, 0))
		s.age += length
		return wait / length
	})
}

// weight is that of a draw at the sample's mean rate.
func (f *thriftyForecast) weight(id SampleID) float32 {
	if !f.weighted() {
		return 1
	}
	s := f.now(id)
	from, to := f.due(thriftySample{id: id, score: s.score, again: true})
	return float32(((f.uses-1)*f.gap + (from+to)/2) / f.uses)
}

func (f *thriftyForecast) weighted() bool { return f.sampler.book != nil }
