package simulator

import (
	"errors"
	"fmt"
	"time"

	"rankpool/scheduler"
)

// Lane is one of several trainings that use the data set and the memory at the same time.
type Lane struct {
	Name   string
	Losses [][]float32 // [epoch][sample]; nil: those of the trace
	Seed   int64
	Step   time.Duration // of a global batch
	Start  time.Duration // when the training begins
}

// LaneResult is what a training was given, over all epochs.
type LaneResult struct {
	Name  string `json:"name"`
	Draws int64  `json:"draws"`
	Hits  int64  `json:"hits"` // found in the partition of the sample's owner
	// draws that were given nothing, or what a planned hit would have been
	Fallbacks int64 `json:"fallbacks"`
}

// LanesResult is what all trainings together have read, over all epochs.
type LanesResult struct {
	Sampler  string  `json:"sampler"`
	Policy   string  `json:"policy"`
	Capacity float64 `json:"capacity"`
	Ranks    int     `json:"ranks"`
	Epochs   int     `json:"epochs"`
	Reads    int64   `json:"storage_reads"`
	MinReads int64   `json:"min_storage_reads"` // of MIN, on the same draws in the same order
	// samples that were in memory and are read once more, to measure what the cache is worth to each
	// training; not among Reads
	ProbeReads int64        `json:"benefit_reads"`
	Lanes      []LaneResult `json:"lanes"`

	IDs [][]scheduler.SampleID `json:"-"` // of each lane, in order
}

// RunLanes simulates trainings on one cache by the real schedulers, each training a lane. A
// training takes a global batch every Step from Start on, at once and without waiting for storage,
// for cfg.Epochs epochs, and then ends. The same arguments give the same result.
//
// It returns an error where Run does, for a name that is given twice, and for steps below 1 ns.
func RunLanes(cfg Config, lanes []Lane) (*LanesResult, error) {
	s, err := newSetup(cfg)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	p, err := s.newLanes(lanes)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	for l := p.next(); l != nil; l = p.next() {
		p.batch(l)
	}
	return p.finish(), nil
}

func (s *setup) newLanes(lanes []Lane) (*lanesRun, error) {
	if err := s.checkLanes(lanes); err != nil {
		return nil, err
	}
	p := &lanesRun{stagerRanks: &stagerRanks{setup: s}}
	for number, l := range lanes {
		t, err := p.newLane(number, l)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", l.Name, err)
		}
		p.lanes = append(p.lanes, t)
	}
	p.fetched = func(scheduler.SampleID, int, int) { p.reads++ }
	p.reread = func() { p.probeReads++ }
	p.drew = func(_, lane, _, _ int, o scheduler.Outcome) {
		if o == scheduler.Hit {
			p.lanes[lane].result.Hits++
		}
	}
	return p, p.make(p.lanes[0].planCfg.World)
}

func (s *setup) checkLanes(lanes []Lane) error {
	names := map[string]bool{}
	for _, l := range lanes {
		switch {
		case names[l.Name]:
			return fmt.Errorf("two jobs are called %s", l.Name)
		case l.Step <= 0 || l.Start < 0:
			return fmt.Errorf("job %s takes a step every %v from %v on: the first must be above "+
				"0 and the second not below", l.Name, l.Step, l.Start)
		case l.Losses != nil && (len(l.Losses) < s.Epochs || len(l.Losses[0]) != s.Trace.Samples()):
			return fmt.Errorf("job %s has losses of %d epochs and %d samples, there are %d and %d",
				l.Name, len(l.Losses), len(l.Losses[0]), s.Epochs, s.Trace.Samples())
		}
		names[l.Name] = true
	}
	if len(lanes) == 0 {
		return errors.New("give at least one job")
	}
	if s.System.Name != "rankpool" {
		return fmt.Errorf("jobs by name are simulated for rankpool, not for %s", s.System.Name)
	}
	return nil
}

// lanesRun is a simulation under way.
type lanesRun struct {
	*stagerRanks
	lanes []*laneRun
	order []scheduler.SampleID // the draws of all lanes

	reads, probeReads int64
}

// laneRun is a training under way.
type laneRun struct {
	Lane
	number   int
	trace    *Trace
	training *training
	benefit  *scheduler.Benefit // storage takes no time, so it stays unknown
	planCfg  scheduler.PlanConfig
	plan     *scheduler.Plan // of the epoch under way
	epoch    int             // under way, -1 before the first
	batch    int             // the next one
	at       time.Duration   // when
	result   LaneResult
	ids      []scheduler.SampleID
}

func (p *lanesRun) newLane(number int, l Lane) (*laneRun, error) {
	trace := *p.Trace
	if l.Losses != nil {
		trace.Losses = l.Losses
	}
	t := &laneRun{
		Lane: l, number: number, trace: &trace, epoch: -1, at: l.Start,
		result: LaneResult{Name: l.Name}, benefit: scheduler.NewBenefit(number, 1),
	}
	cfg := p.samplerConfig(p.sampler, 0)
	cfg.Seed = l.Seed
	sampler, err := scheduler.NewSampler(cfg)
	if err != nil {
		return nil, err
	}
	t.planCfg = p.planConfig(sampler)
	t.planCfg.Assignment = scheduler.AssignLocal
	return t, nil
}

// next returns the training whose batch comes next, nil when all have ended.
func (p *lanesRun) next() (next *laneRun) {
	for _, l := range p.lanes {
		if l.epoch < p.Epochs && (next == nil || l.at < next.at) {
			next = l
		}
	}
	return next
}

// batch has a training take its next global batch.
func (p *lanesRun) batch(l *laneRun) {
	if l.plan == nil {
		p.begin(l)
	}
	for t, r := range l.planCfg.World {
		p.ranks[r].step(scheduler.Requested{
			Lane: l.number, Trainer: t, Epoch: l.epoch, Batch: l.batch, Ticket: 1 + uint64(t),
		})
	}
	p.settle()
	lo, hi := l.plan.Range(l.batch)
	ids := l.plan.IDs[lo:hi]
	l.ids, p.order = append(l.ids, ids...), append(p.order, ids...)
	for _, r := range p.ranks {
		r.trained(l.found)
	}
	p.settle()
	if l.training.weighted() {
		var r scheduler.Report
		l.trace.train(l.epoch, ids, &r)
		l.training.report(l.epoch, l.batch, r.Losses)
	}
	l.at += l.Step
	if l.batch++; l.batch == l.plan.Batches() {
		l.plan = nil
		if l.epoch == p.Epochs-1 {
			l.epoch = p.Epochs
			p.step(scheduler.LaneClosed{Lane: l.number})
		}
	}
}

// begin begins an epoch of a training.
func (p *lanesRun) begin(l *laneRun) {
	if l.training == nil {
		if l.number > 0 {
			p.step(scheduler.LaneOpened{Lane: l.number, World: l.planCfg.World})
		}
		l.training = p.newTraining(l.Seed, l.planCfg, nil, func(e scheduler.Event) {
			switch e := e.(type) {
			case scheduler.Planned:
				e.Lane = l.number
				e.Probe = l.benefit.Begin(e.Plan.Epoch, e.From, e.Plan.Batches(), p.measures())
				p.step(e)
			case scheduler.Scored:
				e.Lane = l.number
				p.step(e)
			}
		}, p.settle)
	}
	l.epoch++
	l.batch = 0
	l.plan = l.training.begin(l.epoch)
}

// measures reports whether ranks measure what the cache is worth to each training: there are
// several, and memory does not hold all samples.
func (p *lanesRun) measures() bool { return len(p.lanes) > 1 && p.Capacity < 1 }

// found counts what a training was given.
func (l *laneRun) found(d scheduler.Deliver) {
	l.result.Draws += int64(len(d.IDs))
	for _, source := range d.Source {
		if source >= scheduler.FromFallback {
			l.result.Fallbacks++
		}
	}
}

func (p *lanesRun) finish() *LanesResult {
	r := &LanesResult{
		Sampler: p.sampler, Policy: p.policy, Capacity: p.Capacity, Ranks: p.Ranks,
		Epochs: p.Epochs, Reads: p.reads, ProbeReads: p.probeReads,
	}
	samples := p.Trace.Samples()
	for _, hit := range MinHits(p.order, samples, int64(p.Capacity*float64(samples))) {
		if !hit {
			r.MinReads++
		}
	}
	for _, l := range p.lanes {
		r.Lanes, r.IDs = append(r.Lanes, l.result), append(r.IDs, l.ids)
	}
	return r
}
