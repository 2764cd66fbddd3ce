package simulator

import (
	"fmt"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/stager"
)

// windowShare divides what a rank owns into the part that it holds ahead of use: an eighth, the
// tool's default.
const windowShare = 8

// stagers is a job's ranks in one goroutine: coordinator and stagers are the real ones, and
// storage, peers and training respond at once and without faults. So the counts depend only on what
// the schedulers decide, not on time or a machine.
type stagers struct {
	*stagerRanks
	training *training
	planCfg  plan.Config
	plans    []*plan.Plan // by epoch
	base     []int        // by epoch: batches of all epochs before
	holder   []uint16     // by sample: the rank that drew it last

	result   Result
	coverage *coverage
	clock    *Clock
	loads    map[int][]Load // by position, of the batches that are staged and not trained
	readIn   []int32        // by sample: 1 + the last epoch that it was read for
	missed   []int64        // by epoch: bytes of the samples that were read, each once
	digest   *idsDigest
}

// runStagers simulates a system with the real schedulers, one per rank, with the system's policy in
// each partition, for one job.
//
// As in the tool, an epoch's plan is made, and its first batches enter the window, when the scores
// before the cut of the previous epoch are folded.
func runStagers(s *setup) (*Result, error) {
	p, err := newStagers(s)
	if err != nil {
		return nil, fmt.Errorf("simulator: %s: %w", s.System.Name, err)
	}
	for epoch := range s.Epochs {
		p.train(epoch, func(stager.Deliver) {})
	}
	return p.finish(), nil
}

func newStagers(s *setup) (*stagers, error) {
	n := s.Trace.Samples()
	sampler, err := s.newSampler(s.sampler, 0)
	if err != nil {
		return nil, err
	}
	p := &stagers{
		stagerRanks: &stagerRanks{setup: s}, holder: make([]uint16, s.held()),
		readIn:   make([]int32, s.held()),
		loads:    map[int][]Load{},
		coverage: newCoverage(n, s.SkipEpochs), clock: s.newClock(),
		digest: newIDsDigest(s.IDsDigest), planCfg: s.planConfig(sampler),
	}
	p.planCfg.Assignment = plan.AssignLocal
	p.fetched, p.asked = p.onFetched, p.onAsked
	p.drew = func(rank, _, epoch, place int, o stager.Outcome) { p.onDrew(rank, epoch, place, o) }
	if err := p.make(p.planCfg.World); err != nil {
		return nil, err
	}
	p.training = s.newTraining(s.Seed, p.planCfg, p.drive, p.settle)
	return p, nil
}

// part returns a rank's part of the memory. If all samples have one size, it is a whole number of
// them.
func (s *setup) part(rank int) int64 {
	unit := int64(1)
	if s.Trace.SizesBytes == nil {
		unit = s.size(0)
	}
	return part(s.capacityBytes/unit, rank, s.Ranks) * unit
}

// tierPart returns a rank's part of the tiers.
func (s *setup) tierPart(rank int) int64 {
	return part(int64(s.TierCapacity*float64(s.totalBytes)), rank, s.Ranks)
}

// train makes all trainers take the batches of an epoch in step, and report. It calls found for
// each delivery.
func (p *stagers) train(epoch int, found func(stager.Deliver)) {
	plan := p.training.begin(epoch)
	for b := range plan.Batches() {
		p.batch(p.planCfg.World, 0, epoch, b, found)
		p.report(plan, b)
		p.tick(epoch, b)
	}
	if epoch == p.setup.Epochs-1 {
		for _, rank := range p.ranks {
			rank.step(stager.Ended{})
		}
	}
	p.end(epoch)
}

// drive passes an event to the stagers of all ranks.
func (p *stagers) drive(e stager.Event) {
	switch e := e.(type) {
	case stager.Planned:
		p.add(e.Plan)
		p.step(e)
	case stager.Scored:
		p.scored(e)
	}
}

// add adds a plan, whose first batches enter the windows now.
func (p *stagers) add(plan *plan.Plan) {
	base := 0
	if last := plan.Epoch - 1; last >= 0 {
		base = p.base[last] + p.plans[last].Batches()
	}
	p.plans, p.base = append(p.plans, plan), append(p.base, base)
	p.missed = append(p.missed, 0)
	p.result.Epochs = append(p.result.Epochs,
		EpochResult{Batches: make([]BatchResult, plan.Batches())})
}

// scored refreshes predictions, each at the rank that has the sample: the others have nothing to
// refresh.
func (p *stagers) scored(e stager.Scored) {
	for _, id := range e.IDs {
		r := p.ranks[p.holder[id]]
		r.scored = append(r.scored, id)
	}
	for _, r := range p.ranks {
		own := e
		own.IDs = r.scored
		r.step(own)
		r.scored = r.scored[:0]
	}
}

// report reports the losses of a global batch.
func (p *stagers) report(plan *plan.Plan, batch int) {
	lo, hi := plan.Range(batch)
	for _, id := range plan.IDs[lo:hi] {
		p.coverage.trained(plan.Epoch, id)
	}
	p.digest.add(plan.IDs[lo:hi])
	p.training.learn(p.setup.Trace, plan.Epoch, batch, plan.IDs[lo:hi])
}

// load returns what a rank needs for the batch at a position.
func (p *stagers) load(position, rank int) *Load {
	if p.loads[position] == nil {
		p.loads[position] = make([]Load, p.setup.Ranks)
	}
	return &p.loads[position][rank]
}

// epochOf returns the epoch that a position is in.
func (p *stagers) epochOf(position int) int {
	at, exact := slices.BinarySearch(p.base, position)
	if exact {
		return at
	}
	return at - 1
}

// onDrew counts the outcome of a draw of a rank's own sample.
func (p *stagers) onDrew(rank, epoch, place int, outcome stager.Outcome) {
	plan := p.plans[epoch]
	p.holder[plan.IDs[place]] = uint16(rank)
	batch, consumer := plan.BatchOf(place), int(plan.World[plan.Consumer[place]])
	from := &p.result.Epochs[epoch].Batches[batch]
	switch {
	case outcome != stager.Hit:
		from.Storage++
		return
	case consumer == rank:
		from.Local++
		p.load(p.base[epoch]+batch, consumer).LocalBytes += p.setup.size(plan.IDs[place])
	default:
		from.Remote++
	}
}

// onAsked counts what is requested from a peer.
func (p *stagers) onAsked(rank int, c stager.Ask) {
	for _, id := range c.IDs {
		p.load(p.base[c.Epoch]+c.Batch, rank).RemoteBytes += p.setup.size(id)
	}
}

// onFetched counts a read of storage that a batch at a position needs.
func (p *stagers) onFetched(id draw.SampleID, rank, position int) {
	size := p.setup.size(id)
	l := p.load(position, rank)
	l.StorageBytes += size
	l.Reads++
	epoch := p.epochOf(position)
	if epoch >= p.setup.SkipEpochs {
		p.result.StorageBytes += size
	}
	if p.readIn[id] != int32(epoch)+1 {
		p.readIn[id] = int32(epoch) + 1
		p.missed[epoch] += size
	}
}

// tick passes a batch to the time model.
func (p *stagers) tick(epoch, batch int) {
	position := p.base[epoch] + batch
	p.load(position, 0)
	if p.clock != nil {
		p.clock.Batch(p.loads[position])
	}
	delete(p.loads, position)
}

// end ends an epoch.
func (p *stagers) end(epoch int) {
	s, r, plan := p.setup, &p.result, p.plans[epoch]
	if epoch >= s.SkipEpochs {
		r.Draws += int64(len(plan.IDs))
		for _, b := range r.Epochs[epoch].Batches {
			r.add(b)
		}
	}
	if p.clock == nil {
		return
	}
	r.Epochs[epoch].Seconds = p.clock.EndEpoch(!s.plansAhead())
	if epoch >= s.SkipEpochs {
		counted := float64(s.Epochs - s.SkipEpochs)
		r.EpochSeconds += r.Epochs[epoch].Seconds / counted
		r.BoundSeconds += s.Cluster.Bound(s.nodes(), plan.Batches(), p.missed[epoch]) / counted
		r.PlanSeconds += s.Cluster.PlanSeconds(len(plan.IDs)) / counted
	}
}

func (p *stagers) finish() *Result {
	p.setup.describe(&p.result, p.setup.drawScorer, []*coverage{p.coverage}, p.digest)
	return &p.result
}
