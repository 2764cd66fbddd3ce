package systems

import (
	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// spiderLatest holds the newest embedding of each sample that a job trained on, 4 bytes per number.
// The graph of the job's next epoch is built from it at the cut.
type spiderLatest struct {
	cfg        *PoolConfig
	job        int
	embeddings []float32 // [sample][dimension]
	has        []bool
}

func newSpiderLatest(cfg *PoolConfig, job int) *spiderLatest {
	return &spiderLatest{
		cfg: cfg, job: job, embeddings: make([]float32, cfg.Samples*cfg.Dimensions),
		has: make([]bool, cfg.Samples),
	}
}

// take stores a new embedding, if all its numbers are finite.
func (l *spiderLatest) take(id draw.SampleID, embedding []float32) {
	if protocol.ReportedEmbedding(embedding) {
		copy(l.of(id), embedding)
		l.has[id] = true
	}
}

func (l *spiderLatest) of(id draw.SampleID) []float32 {
	return l.embeddings[int(id)*l.cfg.Dimensions:][:l.cfg.Dimensions]
}

// graph builds the graph from scratch, in the order of ids, and scores all samples. So it depends
// on the newest embeddings alone.
func (l *spiderLatest) graph() *spiderGraph {
	g := newSpiderGraph(l.cfg, l.job)
	for id, has := range l.has {
		if has {
			g.take(draw.SampleID(id), l.of(draw.SampleID(id)))
		}
	}
	for id, has := range l.has {
		if has {
			g.score(draw.SampleID(id))
		}
	}
	return g
}

// spiderEpochs lets a pool choose by epoch: an epoch's scores, neighbours and ratio are those at
// the cut of the previous epoch, and stay until the next epoch. So everything that the pool does in
// an epoch is known when the epoch is planned.
type spiderEpochs struct {
	latest []*spiderLatest // by job
	next   []*spiderGraph  // by job: of the epoch that begins next; nil before its cut
	ratio  float64         // of that epoch
}

func newSpiderEpochs(cfg *PoolConfig, ratio float64) *spiderEpochs {
	e := &spiderEpochs{next: make([]*spiderGraph, cfg.Jobs), ratio: ratio}
	for job := range cfg.Jobs {
		e.latest = append(e.latest, newSpiderLatest(cfg, job))
	}
	return e
}

// cut chooses a job's epoch by what was trained so far.
func (p *spiderPool) cut(job, epoch int) {
	p.epochs.next[job] = p.epochs.latest[job].graph()
	if job == 0 && p.trained {
		p.epochs.ratio, p.trained = p.ratio.next(epoch, p.epochs.next[0].known()), false
	}
}

// turn begins the epoch that was chosen last: residents get their new scores, and the nodes of the
// homophily cache their new lists. With several jobs, these are those of the job whose epoch began
// last. An epoch that another sampler draws was not cut before, so turn cuts it.
func (p *spiderPool) turn(job, epoch int) {
	if p.epochs.next[job] == nil {
		p.cut(job, epoch)
	}
	p.graphs[job], p.epochs.next[job] = p.epochs.next[job], nil
	if job == 0 {
		p.divide(p.epochs.ratio)
	}
	g := p.graphs[job]
	for id, score := range g.scores {
		if p.importance.Resident(draw.SampleID(id)) {
			p.importance.Refresh(stager.Use{ID: draw.SampleID(id), Score: score})
		}
	}
	p.homophily.Renew(func(id draw.SampleID) ([]int32, bool) {
		if !g.index.Has(int32(id)) {
			return nil, false
		}
		_, neighbours := g.score(id)
		return neighbours, true
	})
}
