package simulator

import (
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// pooled drives a system's Pool over a trace.
type pooled struct {
	setup  *setup
	memory *systems.Memory
	pool   systems.Pool
	jobs   []*pooledJob
	count  *count
	// offline systems only: the next draw of every draw to come, in the order of batches
	future []float64
}

// pooledJob is one of the jobs that share the pool.
type pooledJob struct {
	number int
	feed   feed
	scorer protocol.Scorer // nil: the system uses no scores
	scores *systems.Scores
	plan   *plan.Plan // of the epoch under way, and of what memory holds of it
	trains *plan.Plan // of the same epoch's samples
	// by place in the plan: the place of the sample's next draw, -1 if there is none
	after []int32
	// by sample: the place of its first draw that is still to come, -1 if there is none
	upcoming []int32
	drawn    protocol.Report
	served   protocol.Report
	buffer   []float32
}

func newPooled(s *setup) (*pooled, error) {
	n := s.held()
	p := &pooled{setup: s, memory: systems.NewMemory(n, s.Ranks, s.capacityBytes, s.size)}
	p.count = newCount(s, p.memory)
	var scores []*systems.Scores
	for number := range s.Jobs {
		j := &pooledJob{number: number, upcoming: make([]int32, n)}
		initial := float32(0)
		if s.scorer != "" {
			var err error
			if j.scorer, err = protocol.NewScorer(s.scorer); err != nil {
				return nil, err
			}
			initial = j.scorer.Initial(s.globalBatch())
		}
		j.scores = systems.NewScores(protocol.EqualScores(n, initial))
		scores = append(scores, j.scores)
		p.jobs = append(p.jobs, j)
	}
	p.pool = s.newPool(p.memory, scores, p.count.took())
	for _, j := range p.jobs {
		var err error
		if j.feed, err = p.newFeed(j); err != nil {
			return nil, err
		}
	}
	if s.owner.Offline() {
		var err error
		if p.future, err = s.future(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *pooled) newFeed(j *pooledJob) (feed, error) {
	if p.setup.own {
		return &ownFeed{setup: p.setup, job: j.number, scores: j.scores, pool: p.pool}, nil
	}
	return p.setup.newPlannedFeed(j.number)
}

// epoch trains an epoch of all jobs, whose global batches alternate.
func (p *pooled) epoch(epoch int) error {
	p.count.begin(epoch)
	draws, batches := 0, 0
	for _, j := range p.jobs {
		if err := p.begin(j, epoch); err != nil {
			return err
		}
		draws, batches = draws+len(j.plan.IDs), max(batches, j.plan.Batches())
	}
	p.divided()
	p.foresee(nil)
	for number := range batches {
		for _, j := range p.jobs {
			if number < j.plan.Batches() {
				p.batch(j, epoch, number)
				p.evaluate(j, number+1)
			}
			if number+1 == j.plan.Cut() && epoch+1 < p.setup.Epochs {
				if err := p.cut(j, epoch); err != nil {
					return err
				}
			}
		}
		p.count.step()
	}
	p.count.end(batches, draws)
	return nil
}

// divided records how the pool divided its memory for the epoch that has begun, and why.
func (p *pooled) divided() {
	if d, ok := p.pool.(systems.Divider); ok {
		if ratio, divides := d.Ratio(); divides {
			p.count.result.ImpRatio = append(p.count.result.ImpRatio, ratio)
			p.count.result.ScoreDeviation = d.Deviations()
		}
	}
}

// evaluate measures the losses of the samples that the pool wants evaluated, if batch number of the
// epoch is the one before which they are due.
func (p *pooled) evaluate(j *pooledJob, number int) {
	e, ok := p.pool.(systems.Evaluator)
	if !ok || number != plan.EvaluateAt(j.plan.Batches()) {
		return
	}
	ids := e.Evaluate(j.number)
	p.count.evaluated(ids)
	j.learn(p.setup.traceOf(j.number), j.plan.Epoch, ids)
}

// cut makes a job choose the epoch after the one under way.
func (p *pooled) cut(j *pooledJob, epoch int) error {
	j.scores.TakeCut()
	if e, ok := p.pool.(systems.Evaluator); ok {
		e.TakeCut(j.number, epoch+1)
	}
	if m, ok := p.pool.(systems.Measurer); ok {
		m.Measure(j.number, p.setup.Trace.accuracyBefore(epoch))
	}
	return j.feed.cut(epoch)
}

// begin begins a job's epoch.
func (p *pooled) begin(j *pooledJob, epoch int) error {
	plan, err := j.feed.begin(epoch)
	if err != nil {
		return err
	}
	j.trains, plan = plan, plan.Held()
	j.plan, j.after = plan, make([]int32, len(plan.IDs))
	for id := range j.upcoming {
		j.upcoming[id] = -1
	}
	for i := len(plan.IDs) - 1; i >= 0; i-- {
		id := plan.IDs[i]
		j.after[i], j.upcoming[id] = j.upcoming[id], int32(i)
	}
	p.pool.Begin(j.number, epoch, plan.IDs)
	p.evaluate(j, 0)
	return nil
}

// batch lets the pool answer a global batch, and the job train on the answers.
func (p *pooled) batch(j *pooledJob, epoch, number int) {
	lo, hi := j.plan.Range(number)
	b := &systems.Batch{
		Job: j.number, Epoch: epoch, Number: number, IDs: j.plan.IDs[lo:hi],
		Rank: make([]int32, hi-lo), Next: make([]float64, hi-lo),
	}
	for i, id := range b.IDs {
		b.Rank[i] = j.plan.World[j.plan.Consumer[lo+i]]
		j.upcoming[id] = j.after[lo+i]
		b.Next[i] = p.next(id)
	}
	if p.future != nil {
		copy(b.Next, p.future)
		p.future = p.future[hi-lo:]
	}
	answers := make([]systems.Answer, hi-lo)
	p.pool.Batch(b, answers)
	p.count.batch(b, answers)

	served := make([]draw.SampleID, hi-lo)
	for i, a := range answers {
		served[i] = a.Served
	}
	drawn := b.IDs
	if j.trains != j.plan {
		lo, hi = j.trains.Range(number)
		drawn = j.trains.IDs[lo:hi]
		served = drawn
	}
	if j.number == 0 {
		p.count.digest.add(served)
	}
	trace := p.setup.traceOf(j.number)
	j.learn(trace, epoch, served)
	p.pool.Trained(b, j.served)
	p.count.trained(j.number)
	trace.train(epoch, drawn, &j.drawn)
	j.feed.report(epoch, number, j.drawn.Losses)
	p.foresee(b.IDs)
}

// foresee passes the pool the next draws of samples, nil for all. An offline system knows them.
func (p *pooled) foresee(ids []draw.SampleID) {
	if f, ok := p.pool.(systems.Foreseer); ok && p.future == nil {
		f.Foresee(ids, p.next)
	}
}

// next returns when some job draws a sample again: exact in the current epochs, predicted beyond.
func (p *pooled) next(id draw.SampleID) float64 {
	at := math.Inf(1)
	for _, j := range p.jobs {
		if place := j.upcoming[id]; place >= 0 {
			at = min(at, float64(j.plan.Epoch)+float64(place)/float64(len(j.plan.IDs)))
		} else {
			at = min(at, j.plan.Next(id, j.feed.score(id)))
		}
	}
	return at
}

// learn passes the job's system the losses of samples, as one batch.
func (j *pooledJob) learn(t *Trace, epoch int, ids []draw.SampleID) {
	t.train(epoch, ids, &j.served)
	if j.scorer == nil {
		return
	}
	j.buffer = j.buffer[:0]
	for _, id := range ids {
		j.buffer = append(j.buffer, j.scores.Of[id])
	}
	j.scorer.Score(j.served, j.buffer)
	for i, id := range ids {
		if protocol.Reported(j.served.Losses[i]) {
			j.scores.Of[id], j.scores.Known[id] = j.buffer[i], true
		}
	}
}
