// Package simulator runs a job's ranks in one goroutine: the schedulers are the real ones, and storage, peers and training answer
// at once and without faults. So what it counts is what the plans and policies decide, and nothing that time or a machine does.
package simulator

import (
	"fmt"

	"rankpool/scheduler"
)

// Config says what job is simulated. Every sample has one byte.
type Config struct {
	Losses    [][]float32 // recorded, [epoch][sample]: what training reports when it trains on the sample in that epoch
	Sampler   string
	Policy    string
	Ranks     int     // each owns a partition and has one trainer
	BatchSize int     // a trainer's
	Capacity  float64 // of all partitions together, as a share of the samples, in [0, 1]
	Seed      int64
}

// Result is what was counted.
type Result struct {
	IDs      []scheduler.SampleID // the draws of all epochs in order
	Begin    []int                // of each epoch, its first place in IDs
	Hits     []int64              // of each epoch, draws that found their sample in its owner's partition
	Sources  [6]int64             // by scheduler.Source, what was delivered from the second epoch on
	Capacity int64                // samples that all partitions hold
	Reads    int64                // of storage, by all ranks
	Missed   int64                // sum over epochs of the samples that had to be read at least once
}

// LocalShare is the share of deliveries from memory that came from the consumer's own rank.
func (r *Result) LocalShare() float64 {
	local, peer := float64(r.Sources[scheduler.FromLocal]), float64(r.Sources[scheduler.FromPeer])
	return local / (local + peer)
}

// windowShare is the part of what a rank owns that it holds ahead of use: the tool's default is an eighth.
const windowShare = 8

// Run simulates the epochs that losses were recorded for. The same Config gives the same Result.
//
// As in the tool, an epoch's plan is made, and its first batches enter the window, when the scores before the cut of the epoch before
// are folded. It returns an error for a sampler or policy that does not exist.
func Run(cfg Config) (*Result, error) {
	p, err := newPool(cfg)
	if err != nil {
		return nil, err
	}
	for epoch := range cfg.Losses {
		p.train(epoch)
	}
	for epoch := range cfg.Losses {
		sum := int64(0)
		for _, r := range p.ranks {
			sum += int64(r.stager.PlannedHits(epoch))
		}
		p.Hits = append(p.Hits, sum)
	}
	return &p.Result, nil
}

// pool is all ranks, and what they are about to do.
type pool struct {
	Config
	Result
	planCfg scheduler.PlanConfig
	ledger  *scheduler.Ledger
	plans   []*scheduler.Plan // as rank 0 has them
	opened  int               // the newest epoch that was begun, -1 before the first
	ranks   []*rank
	todo    []func()
	readIn  []int // by sample: 1 + the last epoch that it was read for
}

func newPool(cfg Config) (*pool, error) {
	n := len(cfg.Losses[0])
	sampler, err := scheduler.NewSampler(scheduler.SamplerConfig{
		Name: cfg.Sampler, Samples: n, Seed: cfg.Seed, BatchSize: cfg.BatchSize, World: cfg.Ranks,
	})
	if err != nil {
		return nil, err
	}
	scorer, err := scheduler.NewScorer("logrank")
	if err != nil {
		return nil, err
	}
	p := &pool{Config: cfg, opened: -1, readIn: make([]int, n)}
	p.Result.Capacity = int64(cfg.Capacity * float64(n))
	p.planCfg = scheduler.PlanConfig{Sampler: sampler, Samples: n, BatchSize: cfg.BatchSize, Ranks: cfg.Ranks}
	for r := range cfg.Ranks {
		p.planCfg.World = append(p.planCfg.World, int32(r))
	}
	p.ledger = scheduler.NewLedger(scorer, scheduler.EqualScores(n, scorer.Initial(cfg.BatchSize*cfg.Ranks)))
	for r := range cfg.Ranks {
		policy, err := scheduler.NewPolicy(cfg.Policy, n)
		if err != nil {
			return nil, err
		}
		p.ranks = append(p.ranks, newRank(p, r, policy))
	}
	return p, nil
}

// plan makes an epoch's plan for every rank, from scores that do not change; nil when the sampler has no use for them.
func (p *pool) plan(epoch int, scores []float32) {
	for r, rank := range p.ranks {
		cfg := p.planCfg
		cfg.Rank = r
		plan := scheduler.NewPlan(cfg, epoch, scores)
		if r == 0 {
			p.plans = append(p.plans, plan)
		}
		rank.step(scheduler.Planned{Plan: plan})
	}
	p.settle()
}

// train has all trainers take the batches of an epoch in step, and report.
func (p *pool) train(epoch int) {
	p.begin(epoch)
	plan := p.plans[epoch]
	p.Begin = append(p.Begin, len(p.IDs))
	p.IDs = append(p.IDs, plan.IDs...)
	for b := range plan.Batches() {
		for t, rank := range p.ranks {
			rank.step(scheduler.Requested{Trainer: t, Epoch: epoch, Batch: b, Ticket: 1 + uint64(t)})
		}
		p.settle()
		for t, rank := range p.ranks {
			rank.trained(t, epoch, b)
		}
		p.settle()
		p.fold()
		p.planAhead()
	}
}

// begin makes an epoch the newest one: reports refer to it from now on.
func (p *pool) begin(epoch int) {
	if p.planCfg.Sampler.Weighted() {
		for r := range p.ranks {
			p.ledger.Finish(r, epoch)
		}
		p.fold()
	}
	p.planAhead() // of epoch 0
	p.ledger.Open(p.plans[epoch])
	p.opened = epoch
	p.planAhead()
}

// planAhead makes the plan after the newest epoch, once the scores it is made from are there.
func (p *pool) planAhead() {
	next := p.opened + 1
	if len(p.plans) > next || next == len(p.Losses) {
		return
	}
	if !p.planCfg.Sampler.Weighted() {
		p.plan(next, nil)
	} else if p.ledger.Ready() {
		p.plan(next, p.ledger.Take())
	}
}

// fold folds what was reported and refreshes the predictions.
func (p *pool) fold() {
	if !p.planCfg.Sampler.Weighted() {
		return
	}
	p.ledger.Fold(func(ids []scheduler.SampleID) {
		for _, rank := range p.ranks {
			rank.step(scheduler.Scored{IDs: ids, Scores: p.ledger.Scores()})
		}
	})
	p.settle()
}

func (p *pool) later(f func()) { p.todo = append(p.todo, f) }

// settle lets everything that is under way happen, in the order in which it began.
func (p *pool) settle() {
	for len(p.todo) > 0 {
		next := p.todo[0]
		p.todo = p.todo[1:]
		next()
	}
}

// rank is one rank's stager, and what its trainer was given last.
type rank struct {
	pool      *pool
	number    int
	stager    *scheduler.Stager
	delivered scheduler.Deliver
}

func newRank(p *pool, number int, policy scheduler.Policy) *rank {
	n := p.planCfg.Samples
	return &rank{pool: p, number: number, stager: scheduler.NewStager(scheduler.StagerConfig{
		Rank: number, Ranks: p.Ranks, World: p.planCfg.World, Samples: n, Policy: policy,
		Size:          func(scheduler.SampleID) int64 { return 1 },
		CapacityBytes: part(p.Result.Capacity, number, p.Ranks),
		WindowBytes:   int64(max(n/p.Ranks/windowShare, 4)),
	})}
}

// step gives the stager an event and begins what it commands.
func (r *rank) step(e scheduler.Event) {
	for _, c := range append([]scheduler.Command(nil), r.stager.Step(e)...) {
		switch c := c.(type) {
		case scheduler.Fetch:
			r.pool.Reads++
			r.pool.later(func() { r.step(scheduler.Fetched{ID: c.ID}) })
		case scheduler.Ask:
			r.pool.later(func() {
				r.pool.ranks[c.Peer].step(scheduler.Asked{Peer: r.number, Ticket: c.Ticket, Epoch: c.Epoch, Batch: c.Batch, IDs: c.IDs})
			})
		case scheduler.Send:
			r.pool.later(func() {
				r.step(scheduler.Sent{Peer: c.Peer, Ticket: c.Ticket})
				r.pool.ranks[c.Peer].step(scheduler.Received{Ticket: c.Ticket, Status: c.Status})
			})
		case scheduler.Deliver:
			r.delivered = c
		}
	}
}

// trained reports the losses of what was delivered, and lets it go.
func (r *rank) trained(trainer, epoch, batch int) {
	p, d := r.pool, r.delivered
	losses := make([]float32, len(d.IDs))
	for i, id := range d.IDs {
		losses[i] = p.Losses[epoch][id]
		if epoch > 0 {
			p.Sources[d.Source[i]]++
		}
		if d.Source[i] == scheduler.FromStorage || d.Source[i] == scheduler.FromFallback {
			if p.readIn[id] != epoch+1 {
				p.readIn[id] = epoch + 1
				p.Missed++
			}
		}
	}
	if err := p.ledger.Report(trainer, epoch, batch, losses); err != nil {
		panic(fmt.Sprintf("simulator: epoch %d, batch %d was not delivered as planned: %v", epoch, batch, err))
	}
	r.step(scheduler.Released{Lease: d.Lease})
}
