package simulator

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/stager"
)

// Lane is one of several trainings that use a data set and the memory at the same time.
type Lane struct {
	Name string
	// Data is the name of the data set; "" is the trace's. The others have as many samples as the
	// losses of their trainings, all of one size.
	Data   string
	Losses [][]float32 // [epoch][sample]; nil: those of the trace
	Seed   int64
	Step   time.Duration // of a global batch whose samples are all in memory
	// Uncached is the time of a global batch whose samples are all read from storage; 0: storage
	// takes no time.
	Uncached time.Duration
	Start    time.Duration // when the training begins
	Epochs   int           // 0: those of the Config
}

// LaneResult is what a training got, over all epochs.
type LaneResult struct {
	Name  string `json:"name"`
	Data  string `json:"data,omitempty"`
	Draws int64  `json:"draws"`
	Hits  int64  `json:"hits"` // found in the partition of the sample's owner
	// draws whose planned hit failed, or that got nothing
	Fallbacks int64 `json:"fallbacks"`
	// Benefit is the ratio that ranks measured last; 0: unknown.
	Benefit float64 `json:"benefit,omitempty"`
	// Speedup is the training's speed over that with Uncached steps, from when all have trained 5
	// epochs until the first ends; 0: there is no such time, or Uncached is 0.
	Speedup float64 `json:"speedup,omitempty"`
}

// DataResult is what was read from a data set, over all epochs.
type DataResult struct {
	Name    string `json:"name"`
	Samples int    `json:"samples"`
	Epochs  int    `json:"epochs"` // the largest number of a training's
	Reads   int64  `json:"storage_reads"`
	// Kept is the data set's part of the memory when the first training ends, as a share of the data
	// set.
	Kept float64 `json:"kept"`
}

// LanesResult is what all trainings together have read, over all epochs.
type LanesResult struct {
	Sampler  string  `json:"sampler"`
	Policy   string  `json:"policy"`
	Capacity float64 `json:"capacity"` // as a share of all data sets
	Ranks    int     `json:"ranks"`
	Epochs   int     `json:"epochs"`
	Reads    int64   `json:"storage_reads"`
	MinReads int64   `json:"min_storage_reads"` // of MIN, on the same draws in the same order
	// reads of samples that were in memory, to measure what the cache is worth to each training; not
	// among Reads
	ProbeReads int64 `json:"benefit_reads"`
	// Speedup is the mean of the trainings' Speedup.
	Speedup float64      `json:"speedup,omitempty"`
	Lanes   []LaneResult `json:"lanes"`
	Data    []DataResult `json:"data,omitempty"` // if there are several

	IDs [][]draw.SampleID `json:"-"` // of each lane, in order
}

// RunLanes simulates trainings on one cache with the real schedulers, each training a lane of its
// data set. A training takes a global batch every Step from Start on, for its number of epochs, and
// then ends. With Uncached, a batch takes longer by the share of its samples that are read from
// storage. Then RunLanes measures what the cache is worth to each training, and divides memory by
// that, as ranks do. The same arguments give the same result.
//
// It returns an error where Run does, for a name that is given twice, and for steps below 1 ns.
func RunLanes(cfg Config, lanes []Lane) (*LanesResult, error) {
	p, err := newLanes(cfg, lanes)
	if err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	for l := p.next(); l != nil; l = p.next() {
		p.batch(l)
	}
	return p.finish(), nil
}

func newLanes(cfg Config, lanes []Lane) (*lanesRun, error) {
	p := &lanesRun{cfg: cfg, first: -1}
	lanes = slices.Clone(lanes)
	for i := range lanes {
		l := &lanes[i]
		if l.Epochs == 0 {
			l.Epochs = cmp.Or(cfg.Epochs, len(cfg.Trace.Losses))
		}
		if l.Losses == nil {
			l.Losses = cfg.Trace.Losses
		}
		p.epochs = max(p.epochs, l.Epochs)
	}
	if err := checkLanes(cfg, lanes); err != nil {
		return nil, err
	}
	for _, l := range lanes {
		set, err := p.set(l)
		if err != nil {
			return nil, err
		}
		t, err := set.newLane(l)
		if err != nil {
			return nil, fmt.Errorf("job %s: %w", l.Name, err)
		}
		set.epochs = max(set.epochs, l.Epochs)
		p.lanes, set.lanes = append(p.lanes, t), append(set.lanes, t)
	}
	for _, set := range p.sets {
		if err := set.make(set.lanes[0].planCfg.World); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func checkLanes(cfg Config, lanes []Lane) error {
	names, samples := map[string]bool{}, map[string]int{"": cfg.Trace.Samples()}
	for _, l := range lanes {
		known := samples[l.Data]
		switch {
		case names[l.Name]:
			return fmt.Errorf("two jobs are called %s", l.Name)
		case l.Step <= 0 || l.Start < 0:
			return fmt.Errorf("job %s takes a step every %v from %v on: the first must be above "+
				"0 and the second not below", l.Name, l.Step, l.Start)
		case l.Uncached != 0 && l.Uncached < l.Step:
			return fmt.Errorf("job %s takes a step every %v without the cache and every %v with it: "+
				"the first must not be the shorter one", l.Name, l.Uncached, l.Step)
		case l.Epochs < 1 || len(l.Losses) < l.Epochs:
			return fmt.Errorf("job %s trains %d epochs: it must be at least 1 and at most the %d of "+
				"its losses", l.Name, l.Epochs, len(l.Losses))
		case known != 0 && len(l.Losses[0]) != known:
			return fmt.Errorf("job %s has losses of %d samples, its data set has %d", l.Name,
				len(l.Losses[0]), known)
		case l.Data != "" && cfg.Trace.SizesBytes != nil:
			return fmt.Errorf("job %s has data of its own: then samples must all have one size", l.Name)
		}
		names[l.Name], samples[l.Data] = true, len(l.Losses[0])
	}
	if len(lanes) == 0 {
		return errors.New("give at least one job")
	}
	if cfg.System.Name != "rankpool" {
		return fmt.Errorf("jobs by name are simulated for rankpool, not for %s", cfg.System.Name)
	}
	return nil
}

// steadyEpochs is the number of epochs after which memory is divided and full: a training is
// measured in its second or third, and what it gets then is read in the next.
const steadyEpochs = 5

// lanesRun is a simulation under way.
type lanesRun struct {
	cfg    Config
	epochs int // the largest number of a training's
	sets   []*laneSet
	lanes  []*laneRun
	order  []draw.SampleID // the draws of all lanes, numbered over all data sets

	reads, probeReads int64
	first             time.Duration // when all had trained steadyEpochs; below 0: not yet
	last              time.Duration // when the first of them ended, if that was later
}

// laneSet is a data set, with the stagers of all ranks.
type laneSet struct {
	*stagerRanks
	run    *lanesRun
	name   string
	begin  int // the number of its first sample
	epochs int // the largest number of a training's
	lanes  []*laneRun
	parts  []int64 // of the memory, by rank
	reads  int64
	kept   float64
}

// laneRun is a training under way.
type laneRun struct {
	Lane
	set      *laneSet
	number   int // in its data set
	trace    *Trace
	training *training
	benefit  *stager.Benefit
	probes   map[int]stager.Probe // by epoch
	planCfg  plan.Config
	plan     *plan.Plan    // of the epoch under way
	epoch    int           // under way, -1 before the first
	batch    int           // the next one
	at       time.Duration // when
	fetched  int           // samples of the batch that were read from storage
	steady   int           // batches that it has taken since lanesRun.first
	result   LaneResult
	ids      []draw.SampleID
}

// set returns a training's data set.
func (p *lanesRun) set(l Lane) (*laneSet, error) {
	begin := 0
	for _, set := range p.sets {
		if set.name == l.Data {
			return set, nil
		}
		begin += set.setup.Trace.Samples()
	}
	cfg := p.cfg
	cfg.Epochs = 0
	if l.Data != "" {
		cfg.Trace = &Trace{Losses: l.Losses}
	}
	s, err := newSetup(cfg)
	if err != nil {
		return nil, err
	}
	set := &laneSet{stagerRanks: &stagerRanks{setup: s}, run: p, name: l.Data, begin: begin}
	for r := range s.Ranks {
		set.parts = append(set.parts, s.part(r))
	}
	set.fetched = func(draw.SampleID, int, int) { set.reads++; p.reads++ }
	set.reread = func() { p.probeReads++ }
	set.drew = func(_, lane, _, _ int, o stager.Outcome) {
		if o == stager.Hit {
			set.lanes[lane].result.Hits++
		}
	}
	p.sets = append(p.sets, set)
	return set, nil
}

func (set *laneSet) newLane(l Lane) (*laneRun, error) {
	trace := *set.setup.Trace
	trace.Losses = l.Losses
	number := len(set.lanes)
	t := &laneRun{
		Lane: l, set: set, number: number, trace: &trace, epoch: -1, at: l.Start,
		result: LaneResult{Name: l.Name, Data: l.Data}, probes: map[int]stager.Probe{},
		benefit: stager.NewBenefit(slices.Index(set.run.sets, set)+number, 1),
	}
	cfg := set.setup.samplerConfig(set.setup.sampler, 0)
	cfg.Seed = l.Seed
	sampler, err := draw.NewSampler(cfg)
	if err != nil {
		return nil, err
	}
	t.planCfg = set.setup.planConfig(sampler)
	t.planCfg.Assignment = plan.AssignLocal
	return t, nil
}

// next returns the training whose batch comes next, nil when all have ended.
func (p *lanesRun) next() (next *laneRun) {
	for _, l := range p.lanes {
		if l.epoch < l.Epochs && (next == nil || l.at < next.at) {
			next = l
		}
	}
	return next
}

// batch trains a training's next global batch.
func (p *lanesRun) batch(l *laneRun) {
	if l.plan == nil {
		p.begin(l)
	}
	set := l.set
	l.fetched = 0
	set.batch(l.planCfg.World, l.number, l.epoch, l.batch, l.found)
	lo, hi := l.plan.Range(l.batch)
	ids := l.plan.IDs[lo:hi]
	l.ids = append(l.ids, ids...)
	for _, id := range ids {
		p.order = append(p.order, id+draw.SampleID(set.begin))
	}
	l.training.learn(l.trace, l.epoch, l.batch, ids)
	p.took(l, len(ids))
	if l.batch++; l.batch == l.plan.Batches() {
		l.plan = nil
		p.endEpoch(l)
	}
}

// took moves a training to the end of its batch.
func (p *lanesRun) took(l *laneRun, draws int) {
	l.at += l.Step
	if l.Uncached > 0 {
		if probe := l.probes[l.epoch]; l.batch >= probe.Begin && l.batch < probe.End {
			l.fetched = draws
		}
		l.at += (l.Uncached - l.Step) * time.Duration(l.fetched) / time.Duration(draws)
		if l.benefit.Ready(l.epoch, l.batch, l.at) {
			p.weigh(l.set)
		}
	}
	if p.first >= 0 && p.last == 0 {
		l.steady++
	}
}

// endEpoch ends an epoch of a training, and with its last one the training.
func (p *lanesRun) endEpoch(l *laneRun) {
	young := func(l *laneRun) bool {
		return l.epoch < steadyEpochs-1 || l.epoch == steadyEpochs-1 && l.plan != nil
	}
	if p.first < 0 && !slices.ContainsFunc(p.lanes, young) {
		p.first = l.at
	}
	if l.epoch == l.Epochs-1 {
		if p.last == 0 {
			p.last = l.at
			p.keeps()
		}
		l.epoch = l.Epochs
		l.set.step(stager.LaneClosed{Lane: l.number})
		p.weigh(l.set)
	}
}

// begin begins an epoch of a training.
func (p *lanesRun) begin(l *laneRun) {
	if l.training == nil {
		if l.number > 0 {
			l.set.step(stager.LaneOpened{Lane: l.number, World: l.planCfg.World})
		}
		own := *l.set.setup
		own.Epochs = l.Epochs
		l.training = own.newTraining(l.Seed, l.planCfg, func(e stager.Event) {
			switch e := e.(type) {
			case stager.Planned:
				e.Lane = l.number
				e.Probe = l.benefit.Begin(e.Plan.Epoch, e.From, e.Plan.Batches(), p.measures())
				l.probes[e.Plan.Epoch] = e.Probe
				l.set.step(e)
			case stager.Scored:
				e.Lane = l.number
				l.set.step(e)
			}
		}, l.set.settle)
	}
	l.epoch++
	l.batch = 0
	l.plan = l.training.begin(l.epoch)
	if l.epoch == 0 {
		p.weigh(l.set)
	}
}

// measures reports whether ranks measure what the cache is worth to each training: if there are
// several, memory does not hold all samples, and NoBenefit is not set.
func (p *lanesRun) measures() bool {
	return len(p.lanes) > 1 && p.cfg.Capacity < 1 && !p.cfg.NoBenefit
}

// gains returns what the cache is worth to each training that is under way on the data set.
func (set *laneSet) gains() (lanes []int, gains []float64) {
	for _, l := range set.lanes {
		if l.training != nil && l.epoch < l.Epochs {
			lanes = append(lanes, l.number)
			gains = append(gains, l.benefit.Gain(len(l.planCfg.World)))
		}
	}
	return lanes, gains
}

// weigh weighs the trainings on a data set, and divides the memory of each rank among the data
// sets, by what the cache is worth to the trainings.
func (p *lanesRun) weigh(set *laneSet) {
	lanes, gains := set.gains()
	for i, weight := range stager.Weights(gains) {
		set.step(stager.Weighed{Lane: lanes[i], Weight: weight})
	}
	if len(p.sets) == 1 {
		return
	}
	for r := range p.cfg.Ranks {
		p.divide(r)
	}
}

// divide divides the memory of a rank among the data sets.
func (p *lanesRun) divide(rank int) {
	var claims []stager.Claim
	total := int64(0)
	for _, set := range p.sets {
		c := set.claim(rank)
		claims, total = append(claims, c), total+c.EvenBytes
	}
	parts := stager.Divide(claims, total)
	for _, grows := range []bool{false, true} {
		for i, set := range p.sets {
			if set.parts[rank] == parts[i] || grows != (parts[i] > set.parts[rank]) {
				continue
			}
			set.parts[rank] = parts[i]
			set.ranks[rank].step(stager.Shrunk{CapacityBytes: parts[i]})
			set.settle()
		}
	}
}

// claim returns the data set's claim to the memory of a rank.
func (set *laneSet) claim(rank int) stager.Claim {
	c := stager.Claim{EvenBytes: set.setup.part(rank)}
	for id := range draw.SampleID(set.setup.Trace.Samples()) {
		if draw.Owner(id, set.setup.Ranks) == rank {
			c.WholeBytes += set.setup.size(id)
		}
	}
	c.WholeBytes = max(c.WholeBytes, c.EvenBytes)
	_, gains := set.gains()
	if len(gains) == 0 || slices.Min(gains) < 0 {
		c.Gain = -1
		return c
	}
	for _, g := range gains {
		c.Gain += g
	}
	return c
}

// keeps records how memory is divided.
func (p *lanesRun) keeps() {
	for _, set := range p.sets {
		bytes := int64(0)
		for _, part := range set.parts {
			bytes += part
		}
		set.kept = float64(bytes) / float64(set.setup.totalBytes)
	}
}

// found counts what a training got.
func (l *laneRun) found(d stager.Deliver) {
	l.result.Draws += int64(len(d.IDs))
	for _, source := range d.Source {
		switch {
		case source >= stager.FromFallback:
			l.result.Fallbacks++
		case source == stager.FromStorage:
			l.fetched++
		}
	}
}

func (p *lanesRun) finish() *LanesResult {
	s := p.sets[0].setup
	r := &LanesResult{
		Sampler: s.sampler, Policy: s.policy, Capacity: p.cfg.Capacity, Ranks: p.cfg.Ranks,
		Epochs: p.epochs, Reads: p.reads, ProbeReads: p.probeReads,
	}
	samples := 0
	for _, set := range p.sets {
		n := set.setup.Trace.Samples()
		samples += n
		if len(p.sets) > 1 {
			r.Data = append(r.Data,
				DataResult{
					Name: set.name, Samples: n, Epochs: set.epochs, Reads: set.reads, Kept: set.kept,
				})
		}
	}
	for _, hit := range MinHits(p.order, samples, int64(p.cfg.Capacity*float64(samples))) {
		if !hit {
			r.MinReads++
		}
	}
	for _, l := range p.lanes {
		l.result.Benefit = l.benefit.Measured().Ratio()
		if span := p.last - p.first; p.first >= 0 && span > 0 {
			l.result.Speedup = float64(l.steady) * float64(l.Uncached) / float64(span)
		}
		r.Speedup += l.result.Speedup / float64(len(p.lanes))
		r.Lanes, r.IDs = append(r.Lanes, l.result), append(r.IDs, l.ids)
	}
	return r
}
