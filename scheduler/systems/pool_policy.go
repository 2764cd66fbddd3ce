package systems

import (
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// PolicyPool is a Pool with one region, ordered by a Policy.
type PolicyPool struct {
	cfg    PoolConfig
	memory *Memory
	cache  *stager.Cache
	lister stager.Lister // the policy, if it wants to know when an epoch begins
	looks  bool          // the policy looks ahead, and at nothing else
}

// NewPolicyPool returns an empty pool.
func NewPolicyPool(cfg PoolConfig, policy stager.Policy) *PolicyPool {
	p := &PolicyPool{cfg: cfg, memory: cfg.Memory}
	p.cache = stager.NewCache(policy, cfg.Memory.CapacityBytes(), cfg.Memory.Size)
	p.lister, _ = policy.(stager.Lister)
	_, p.looks = policy.(stager.LookAhead)
	return p
}

// Begin implements Pool.
func (p *PolicyPool) Begin(job, _ int, _ []draw.SampleID) {
	if s := p.cfg.Scores[job]; p.lister != nil {
		p.lister.Epoch(s.Of, slices.Contains(s.Known, true))
	}
}

// Batch implements Pool.
func (p *PolicyPool) Batch(b *Batch, answers []Answer) {
	for i, id := range b.IDs {
		answers[i] = p.memory.Draw(p.cache, p.use(b.Job, id, b.Next[i]), b.Rank[i])
	}
}

// Trained implements Pool.
func (p *PolicyPool) Trained(b *Batch, r protocol.Report) {
	for _, id := range r.IDs {
		if next, in := p.cache.Next(id); in {
			p.cache.Refresh(p.use(b.Job, id, next))
		}
	}
}

// Foresee implements Foreseer.
func (p *PolicyPool) Foresee(ids []draw.SampleID, next func(draw.SampleID) float64) {
	switch {
	case !p.looks:
	case ids == nil:
		p.cache.RefreshAll(func(id draw.SampleID, _ float64) stager.Use {
			return stager.Use{ID: id, Next: next(id)}
		})
	default:
		for _, id := range ids {
			if p.cache.Resident(id) {
				p.cache.Refresh(stager.Use{ID: id, Next: next(id)})
			}
		}
	}
}

func (p *PolicyPool) use(job int, id draw.SampleID, next float64) stager.Use {
	s := p.cfg.Scores[job]
	return stager.Use{ID: id, Next: next, Score: s.Of[id], Known: s.Known[id]}
}
