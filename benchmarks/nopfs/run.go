package nopfs

import (
	"math/rand/v2"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// A Result is the cost of the whole training with one policy. Times are in seconds, amounts in MB.
type Result struct {
	Scenario string `json:"scenario"`
	Policy   string `json:"policy"`
	Refused  string `json:"refused,omitempty"` // why the policy cannot be used; the rest is 0 then

	Seconds float64 `json:"seconds"`         // of preloading and training
	Preload float64 `json:"preload_seconds"` // before training begins
	// waiting for samples, mean over the workers
	Stall float64 `json:"stall_seconds"`

	// What a worker's threads take to fetch, by source, preloading left out; mean over the workers.
	PFSSeconds    float64 `json:"pfs_seconds"`
	RemoteSeconds float64 `json:"remote_seconds"`
	LocalSeconds  float64 `json:"local_seconds"`

	PFSMB    float64 `json:"pfs_mb"` // read from the PFS by all workers, preloading included
	Distinct int     `json:"distinct"`
}

// training is the state of a simulation.
type training struct {
	*Scenario
	policy  *policy
	sizes   []float32 // MB of each sample
	held    [][]uint8 // [worker][sample]: the tier that has it, 0 for none
	workers []worker
	fill    *prefetchers // NoPFS's, or nil
	cursors []int        // [worker], of policies that choose other samples
	shards  [][]draw.SampleID
	used    []bool
	now     float64 // when the batch begins
	out     Result
}

// worker is the state of one worker's staging buffer.
type worker struct {
	staged   float64    // when its threads have read what they were given
	buffered []buffered // what is in the buffer, in order; from the index head
	head     int
	bufferMB float64
	room     float64 // when there was room for the sample that was read last
}

type buffered struct{ mb, until float64 }

// Run simulates the policy with this name. It returns an error if a number of the scenario is out
// of range, or the name is unknown.
//
// Differs: γ is the number of workers, however many read the PFS at that moment: a thread gets
// t(γ)/γ.
func Run(s *Scenario, name string) (*Result, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	p, err := find(name)
	if err != nil {
		return nil, err
	}
	t := &training{
		Scenario: s, policy: p, workers: make([]worker, s.Workers), used: make([]bool, s.Samples),
		out: Result{Scenario: s.Name, Policy: p.Name},
	}
	t.drawSizes()
	if p.prepare != nil {
		if t.out.Refused = p.prepare(t); t.out.Refused != "" {
			return &t.out, nil
		}
	}
	t.now = t.out.Preload
	for w := range t.workers {
		t.workers[w].staged, t.workers[w].room = t.now, t.now
	}
	sampler, err := t.sampler()
	if err != nil {
		return nil, err
	}
	for epoch := range s.Epochs {
		t.epoch(sampler.Draw(epoch, nil).IDs)
	}
	t.end()
	return &t.out, nil
}

func (t *training) sampler() (draw.Sampler, error) {
	return draw.NewSampler(draw.SamplerConfig{
		Name: "torch", Samples: t.Samples, Seed: t.Seed, BatchSize: t.BatchSize, World: t.Workers,
	})
}

// drawSizes draws the samples' sizes.
//
// Source: paper, section 6.1: sizes are normally distributed; thesis, listing 4.2: at least 0.
func (t *training) drawSizes() {
	t.sizes = make([]float32, t.Samples)
	generator := pcg(t.Seed, 0)
	for i := range t.sizes {
		z := 0.0
		if t.DeviationMB > 0 {
			z = generator.NormFloat64()
		}
		t.sizes[i] = float32(max(0, t.MeanMB+float64(t.DeviationMB*z)))
	}
}

func (t *training) mb(id draw.SampleID) float64 { return float64(t.sizes[id]) }

// epoch trains on an epoch's draws, batch by batch.
//
// Source: thesis, section 4.1.4: the next batch begins on all workers when the last has ended this
// one.
func (t *training) epoch(ids []draw.SampleID) {
	for global := t.BatchSize * t.Workers; len(ids) > 0; {
		batch := ids[:min(global, len(ids))]
		ids = ids[len(batch):]
		if t.fill != nil {
			t.fill.advance(t)
		}
		begin := t.now
		for w, share := range t.policy.deal(t, batch) {
			t.now = max(t.now, t.train(w, share, begin))
		}
	}
}

// train trains a worker on its part of a batch from now on, and returns when it ends.
//
// Source: paper, section 4: t(i,f) = max(avail(f), t(i,f-1) + s/c).
func (t *training) train(w int, ids []draw.SampleID, now float64) float64 {
	for _, id := range ids {
		t.used[id] = true
		if available := t.read(w, id, now); available > now {
			t.out.Stall += available - now
			now = available
		}
		now += t.mb(id) / t.Machine.Compute
		if !t.policy.perfect {
			t.workers[w].keep(t.mb(id), now)
		}
	}
	return now
}

// read returns when a sample is in the worker's staging buffer. Its threads read in order of use,
// as far ahead as the buffer has room; what the policy does not read ahead, one thread reads now.
//
// Source: paper, section 4: avail = Σ read / p_0, read = fetch + write.
func (t *training) read(w int, id draw.SampleID, now float64) float64 {
	if t.policy.perfect {
		return now
	}
	own, size := &t.workers[w], t.mb(id)
	local, remote := t.find(w, id)
	fetch, source := t.Machine.Fetch(size, float64(t.Workers), local, remote)
	write := t.Machine.Write(size)
	room := own.makeRoom(size, t.CapacityMB[0])
	if t.policy.onDemand && source == systems.NoPFSStorage {
		t.count(source, size, fetch)
		return now + fetch + write
	}
	threads := t.Machine.Tiers[0].Threads
	t.count(source, size, fetch/threads)
	own.staged = max(own.staged, room) + (fetch+write)/threads
	if t.policy.keepRead != nil {
		t.policy.keepRead(t, w, id)
	}
	return own.staged
}

// count adds a fetch that took so long.
func (t *training) count(source systems.NoPFSSource, mb, took float64) {
	switch source {
	case systems.NoPFSLocal:
		t.out.LocalSeconds += took
	case systems.NoPFSRemote:
		t.out.RemoteSeconds += took
	case systems.NoPFSStorage:
		t.out.PFSSeconds += took
		t.out.PFSMB += mb
	}
}

// find returns the tier of a worker that has a sample, and the fastest tier of another worker that
// does.
func (t *training) find(w int, id draw.SampleID) (local, remote int) {
	local, remote = systems.NoPFSNowhere, systems.NoPFSNowhere
	for other, held := range t.held {
		switch tier := int(held[id]); {
		case tier == 0:
		case other == w:
			local = tier
		case remote == systems.NoPFSNowhere || tier < remote:
			remote = tier
		}
	}
	return local, remote
}

// makeRoom returns when the buffer has room for a sample: samples leave it as they are used. A
// sample larger than the buffer has it to itself.
func (w *worker) makeRoom(mb, capacityMB float64) float64 {
	for w.head < len(w.buffered) && w.bufferMB+mb > capacityMB {
		w.room = w.buffered[w.head].until
		w.bufferMB -= w.buffered[w.head].mb
		w.head++
	}
	if w.head > 1<<12 && 2*w.head > len(w.buffered) {
		w.buffered = w.buffered[:copy(w.buffered, w.buffered[w.head:])]
		w.head = 0
	}
	return w.room
}

// keep keeps a sample in the buffer until it is used.
func (w *worker) keep(mb, until float64) {
	w.buffered = append(w.buffered, buffered{mb, until})
	w.bufferMB += mb
}

// end turns sums over the workers into means.
func (t *training) end() {
	n := float64(t.Workers)
	t.out.Seconds = t.now
	t.out.Stall /= n
	t.out.PFSSeconds /= n
	t.out.RemoteSeconds /= n
	t.out.LocalSeconds /= n
	for _, used := range t.used {
		if used {
			t.out.Distinct++
		}
	}
}

// pcg returns a generator for the scenario's seed.
func pcg(seed, stream int64) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), uint64(stream)))
}
