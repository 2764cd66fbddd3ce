package draw

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// thriftySampler draws with replacement, and draws more often what a store of a given size holds,
// so that fewer draws are reads. Each draw is weighed with 1/(N p), p its probability given all
// draws before it, so the mean gradient is that of uniform draws, whatever is in the store.
//
// What a sample costs depends on its age, the time since its last draw, in epochs. A sample is
// drawn at the rate g·hot while it is young, and at g·cold, which is less, from the age on at which
// the store would no longer keep it; g is its score, 1 on average and not below the floor. From the
// age of ThriftyGap-1 on the rate doubles after each half of the time that is left, so no sample's
// age reaches ThriftyGap. So ages are the sampler's book of the store, which has Room times the size
// of the data set; they are part of the stream, and what ranks hold is not.
//
// The first epoch has all samples in the order of the sampler uniform. If Reads is 1, all epochs
// do.
//
// Source: Neyman, "Contribution to the Theory of Sampling Human Populations", JASA 1938 (draws in
// proportion to 1/√cost). Differs: which of two rates a sample has follows from its age, and they
// follow from Reads and Room, see thriftyRates.
type thriftySampler struct {
	uniform uniformSampler
	race
	floor, reads, room, fraction float64
	ages                         []float32 // at the beginning of the epoch; nil: before the first
}

// ThriftyGap is the age, in epochs, that no sample reaches, so that it is undrawn for at most 5
// epochs: they may be some hundredths longer or shorter than planned.
const ThriftyGap = 5.75

// Thrifty is the name of the sampler that depends on the memory of all ranks.
const Thrifty = "thrifty"

// thriftyReads is the default of Reads.
const thriftyReads = 0.25

// thriftyRoom is the default of Room.
const thriftyRoom = 0.2

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
		fraction: cmp.Or(cfg.Fraction, 1),
	}
	s.draws = wholeBatches(int(s.fraction*float64(cfg.Samples)), cfg.globalBatch(), cfg.DropLast)
	return s
}

func (s *thriftySampler) Weighted() bool { return s.reads < 1 }

// Start implements Resumer.
func (s *thriftySampler) Start() []byte { return thriftyState(s.room, nil) }

// Resume implements Resumer. The state is Room and then the ages, none before the first epoch.
func (s *thriftySampler) Resume(state []byte) error {
	s.ages = nil
	if state == nil {
		return nil
	}
	le := binary.LittleEndian
	if len(state) != 8 && len(state) != 8+4*s.samples {
		return fmt.Errorf("scheduler: the sampler thrifty cannot resume %d samples from %d bytes",
			s.samples, len(state))
	}
	s.room = math.Float64frombits(le.Uint64(state))
	if len(state) == 8 {
		return nil
	}
	ages := make([]float32, s.samples)
	for i := range ages {
		ages[i] = math.Float32frombits(le.Uint32(state[8+4*i:]))
		if !(ages[i] >= 0 && ages[i] < math.MaxInt32) {
			return fmt.Errorf("scheduler: the sampler thrifty cannot resume: sample %d was last "+
				"drawn %v epochs ago", i, ages[i])
		}
	}
	s.ages = ages
	return nil
}

// Draw implements Sampler.
func (s *thriftySampler) Draw(epoch int, scores []float32) *Draws {
	if s.reads == 1 {
		return s.uniform.Draw(epoch, nil)
	}
	f := &thriftyForecast{sampler: *s, epoch: epoch, rates: newRates(scores, s.samples,
		float64(s.samples), s.floor), after: make([]float32, s.samples)}
	f.life = f.rates.thrifty(s.reads, s.room)
	d := &Draws{Epoch: epoch, Sum: f.rates.sum, forecast: f}
	if s.ages == nil {
		d.IDs = s.uniform.Draw(epoch, nil).IDs
		for i, id := range d.IDs {
			f.after[id] = 1 - float32(i+1)/float32(len(d.IDs))
		}
	} else {
		d.IDs, d.weights = f.draw()
	}
	d.after = thriftyState(s.room, f.after)
	return d
}

// thriftyState encodes what Resume takes.
func thriftyState(room float64, ages []float32) []byte {
	state := make([]byte, 0, 8+4*len(ages))
	state = binary.LittleEndian.AppendUint64(state, math.Float64bits(room))
	for _, age := range ages {
		state = binary.LittleEndian.AppendUint32(state, math.Float32bits(age))
	}
	return state
}

// thriftyForecast is an epoch's rates, and the ages after it.
type thriftyForecast struct {
	sampler thriftySampler
	epoch   int
	rates   rates
	life    thriftyLife
	after   []float32
}

func (f *thriftyForecast) g(id SampleID) float64 { return f.rates.of(f.rates.scores[id]) }

// changes marks a word for a change of a sample's rate; without it, the sample is drawn.
const changes = 1 << 31

// draw returns the draws in order, with their weights, and sets the ages after them.
func (f *thriftyForecast) draw() (ids []SampleID, weights []float32) {
	s := f.sampler
	horizon := 1.1 * s.fraction
	for {
		words := newTimeSorter(int(2*horizon*float64(s.samples)),
			func(key uint32) float64 { return keyTime(key) / horizon })
		drawn := 0
		for id := range SampleID(s.samples) {
			drawn += f.arrivals(id, horizon, words)
		}
		if drawn >= s.draws {
			return f.walk(words)
		}
		horizon *= 2
	}
}

// arrivals adds a word for each draw of a sample and each change of its rate before the horizon.
func (f *thriftyForecast) arrivals(id SampleID, horizon float64, words *timeSorter) (drawn int) {
	clock, g := f.sampler.clocks.epoch(f.epoch), f.g(id)
	age, at, e := float64(f.sampler.ages[id]), 0.0, exponential(clock.bits(id, 0))
	for {
		rate, until := f.life.stage(g, age)
		word := uint64(id)
		if spent := float64(rate * (until - age)); spent < e {
			e -= spent
			at += until - age
			age, word = until, word|changes
		} else {
			drawn++
			at += e / rate
			age, e = 0, exponential(clock.bits(id, uint32(drawn)))
		}
		if at >= horizon {
			return drawn - 1 + int(word/changes)
		}
		words.add(uint64(timeKey(at))<<32 | word)
	}
}

// walk follows the rates of all samples in the order of time.
func (f *thriftyForecast) walk(words *timeSorter) (ids []SampleID, weights []float32) {
	s := f.sampler
	// by sample: the age at which its present rate began; the time of its last draw, -1: none
	began, last := make([]float64, s.samples), make([]float64, s.samples)
	total := 0.0
	for id := range began {
		began[id], last[id] = float64(s.ages[id]), -1
		rate, _ := f.life.stage(f.g(SampleID(id)), began[id])
		total += rate
	}
	end := 0.0
	for sorted := range words.sorted {
		for _, w := range sorted {
			id := SampleID(w &^ changes)
			rate, until := f.life.stage(f.g(id), began[id])
			if w&changes == 0 {
				end = keyTime(uint32(w >> 32))
				ids = append(ids, id)
				weights = append(weights, float32(total/rate/float64(s.samples)))
				until, last[id] = 0, end
			}
			began[id] = until
			next, _ := f.life.stage(f.g(id), until)
			total += next - rate
			if len(ids) == s.draws {
				for id, at := range last {
					age := float64(s.ages[id]) + s.fraction
					if at >= 0 {
						age = s.fraction * (1 - at/end)
					}
					f.after[id] = float32(age)
				}
				return ids, weights
			}
		}
	}
	panic("scheduler: thrifty has too few draws.")
}

func (f *thriftyForecast) next(id SampleID, score float32) float64 {
	g, length := f.rates.of(f.rates.lift.of(score)), f.sampler.fraction
	age := float64(f.after[id])
	for epoch := f.epoch + 1; ; epoch++ {
		e := exponential(f.sampler.clocks.epoch(epoch).bits(id, 0))
		if wait := f.life.wait(g, age, e); wait < length {
			return float64(epoch) + wait/length
		}
		age += length
	}
}

// weight is that of draws which cost the same.
func (f *thriftyForecast) weight(id SampleID) float32 { return float32(1 / f.g(id)) }

func (f *thriftyForecast) weighted() bool { return f.sampler.ages != nil }

// A thriftyLife is the rate of a sample's draws by its age, for g = 1.
type thriftyLife struct {
	hot, cold float64
	exposure  float64 // expected draws of a sample, if it is only drawn while it is young
}

// stage returns the rate at an age, and the age at which it changes next. Ages are compared with
// some slack, so that a time just before a change is taken for the change.
func (l thriftyLife) stage(g, age float64) (rate, until float64) {
	const slack, last = 1e-9, ThriftyGap - 1
	age += slack
	rate, until = float64(g*l.hot), float64(l.exposure/float64(g*l.hot))
	if age < min(until, last) {
		return rate, min(until, last)
	}
	rate = float64(g * l.cold)
	if age < last {
		return rate, last
	}
	left, forced := 1.0, 2.0
	for ThriftyGap-age <= left/2 && left > 0x1p-20 {
		left, forced = left/2, forced*2
	}
	if until = ThriftyGap - left/2; left <= 0x1p-20 {
		until = math.Inf(1)
	}
	return max(rate, forced), until
}

// wait returns the time to the next draw of a sample of an age whose clock rings at e.
func (l thriftyLife) wait(g, age, e float64) float64 {
	for at := age; ; {
		rate, until := l.stage(g, at)
		if spent := float64(rate * (until - at)); spent < e {
			e -= spent
			at = until
			continue
		}
		return at + e/rate - age
	}
}

// cycle returns the expected time between two draws of a sample, and for how long of it a store
// keeps the sample that keeps what is drawn again while it is young.
func (l thriftyLife) cycle(g float64) (length, kept float64) {
	leave := power(1/math.E, l.exposure)
	alive := 1.0
	for at := 0.0; ; {
		rate, until := l.stage(g, at)
		if math.IsInf(until, 1) {
			return length + alive/rate, kept
		}
		left := alive * power(1/math.E, float64(rate*(until-at)))
		length += (alive - left) / rate
		if at == 0 {
			kept = (1 - float64(leave*(1+l.exposure))) / float64(g*l.hot)
		}
		alive, at = left, until
	}
}

// thrifty returns the life with which, of all draws, the share reads is of samples that are no
// longer young, while a store of room times the data set holds those that are drawn again young.
// Without such a life, all ages have the same rate.
func (r *rates) thrifty(reads, room float64) thriftyLife {
	l := thriftyLife{1, 1, -Ln(reads)}
	counts := map[float64]float64{} // samples by g, in steps of an eighth of an octave
	for _, score := range r.scores {
		b := math.Float64bits(r.of(score))&^(1<<49-1) | 1<<48
		counts[math.Float64frombits(b)]++
	}
	steps := make([]float64, 0, len(counts))
	for g := range counts {
		steps = append(steps, g)
	}
	slices.Sort(steps)
	mean := func() (draws, kept float64) {
		for _, g := range steps {
			length, keeps := l.cycle(g)
			share := counts[g] / float64(len(r.scores))
			draws += float64(share / length)
			kept += float64(share * keeps / length)
		}
		return draws, kept
	}
	const rounds = 40
	low, high := 1e-3, 1.0
	for range rounds {
		l.cold = (low + high) / 2
		young, old := l.cold, 64.0 // the more often young samples are drawn, the fewer are kept
		for range rounds {
			l.hot = (young + old) / 2
			if _, kept := mean(); kept > room {
				young = l.hot
			} else {
				old = l.hot
			}
		}
		if draws, _ := mean(); draws > 1 {
			high = l.cold
		} else {
			low = l.cold
		}
	}
	return l
}
