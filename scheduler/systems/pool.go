package systems

import (
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// A Pool is the memory of all ranks together. It answers draws, batch by batch, in the order in
// which training consumes them. It keeps what it holds in a Memory, which counts reads and enforces
// the capacity. It is deterministic, and not safe for concurrent use.
//
// For each epoch of a job, the caller calls Begin, and then Batch and Trained for each global
// batch. The batches of several jobs may alternate.
type Pool interface {
	// Begin starts an epoch of a job: ids are its draws in order. ids must not change afterwards.
	Begin(job, epoch int, ids []draw.SampleID)
	// Batch answers the draws of a global batch: answers[i] for b.IDs[i]. It loads, keeps and drops
	// samples in its Memory.
	Batch(b *Batch, answers []Answer)
	// Trained passes on what training reported for the batch that was answered last: r.IDs are the
	// samples that were served. PoolConfig.Scores are up to date by then.
	Trained(b *Batch, r protocol.Report)
}

// An Evaluator is a Pool that has the losses of some samples measured during an epoch, by a forward
// pass without training. These losses go into the scores that the next epoch is drawn from.
type Evaluator interface {
	// Evaluate returns the samples, which are all in memory. It is called once per epoch, before batch
	// plan.EvaluateAt.
	Evaluate(job int) []draw.SampleID
	// TakeCut is called at an epoch's cut, after Scores.TakeCut. epoch is the next one.
	TakeCut(job, epoch int)
}

// A Resampler is a Pool that chooses how an epoch is drawn. It is not asked if the user chose the
// sampler.
type Resampler interface {
	// Resample is called at the cut of the previous epoch. It returns the name of the sampler for the
	// epoch, and the scores to draw it with. It must not change scores.
	Resample(job, epoch int, scores []float32) (sampler string, weights []float32)
}

// A Repeater is a Resampler that repeats draws by what is in memory when an epoch begins. It is not
// asked if the user chose the sampler.
type Repeater interface {
	// Repeat is called before Begin, with the draws of the epoch in order, and returns as many. It
	// must not change ids.
	Repeat(job, epoch int, ids []draw.SampleID) []draw.SampleID
}

// A Drawer is a Pool that draws an epoch itself. It is not asked if the user chose the sampler.
type Drawer interface {
	// Cut is called at the cut of the previous epoch, before Draw. Draw uses what the pool has learned
	// by then.
	Cut(job int)
	// Draw returns the draws of an epoch in order. It must not change scores. Place j belongs to
	// trainer j mod W, where W is the number of trainers.
	Draw(job, epoch int, scores []float32) []draw.SampleID
}

// A Measurer is a Pool that uses the accuracy that training measures.
type Measurer interface {
	// Measure is called at each cut, before what Drawer and Resampler do there, with the accuracy that
	// was measured after the epoch before the one under way; NaN: none was.
	Measure(job int, accuracy float32)
}

// learning is a Drawer that ranks run with a Learner.
type learning interface {
	Pool
	Drawer
	Measurer
	// appendState appends to b what Draw depends on and what the pool resumes from.
	appendState(b []byte) []byte
	// restoreState restores an empty pool to when appendState returned state. It returns an error if
	// state is from another pool.
	restoreState(state []byte) error
}

// A Foreseer is a Pool that is told when more is known about future draws: of all samples when the
// epochs of all jobs have begun, and of a batch's samples after Trained. next returns when any job
// draws a sample next, see stager.Use.
type Foreseer interface {
	Foresee(ids []draw.SampleID, next func(draw.SampleID) float64) // nil: all samples
}

// A Divider is a Pool that divides its memory between two caches.
type Divider interface {
	// Ratio returns the share of the first cache, in [0, 1], in the epoch that began last; false if
	// that cache always has the whole memory.
	Ratio() (float64, bool)
	// Deviations returns the standard deviation of the scores at the end of each epoch so far.
	Deviations() []float64
}

// Batch is a global batch of draws.
type Batch struct {
	Job, Epoch, Number int
	IDs                []draw.SampleID // drawn
	Rank               []int32         // rank of the trainer that consumes each draw
	// time of the next draw of each sample, see stager.Use
	Next []float64
}

// Answer is how a draw is served.
type Answer struct {
	// the sample that is trained on; a substitute if it is not the one drawn
	Served draw.SampleID
	Read   bool // read from storage now; otherwise from memory
}

// Scores is what a system knows about the importance of samples, with one entry per sample. A pool
// reads it; the pool's caller writes it.
type Scores struct {
	Of    []float32
	Known []bool // false: never scored, Of is the scorer's initial score
	// Cut is a copy of Of at the cut of the previous epoch, see plan.Plan.Cut. The epoch that
	// begins is chosen by it. AnyKnown reports whether any sample had been scored by then.
	Cut      []float32
	AnyKnown bool
}

// NewScores returns scores of samples that were never scored. It keeps the slice.
func NewScores(of []float32) *Scores {
	s := &Scores{Of: of, Known: make([]bool, len(of))}
	s.TakeCut()
	return s
}

// TakeCut copies Of to Cut, so that the next epoch is chosen by the current scores.
func (s *Scores) TakeCut() {
	s.Cut, s.AnyKnown = slices.Clone(s.Of), slices.Contains(s.Known, true)
}

// PoolConfig is what a pool is made from.
type PoolConfig struct {
	System  *System
	Values  Values
	Samples int
	Jobs    int // at least 1
	Ranks   int
	// TrainersPerRank is the number of training processes on each rank: trainer t is on rank t /
	// TrainersPerRank. 0 means 1.
	TrainersPerRank int
	Epochs          int // number that will be trained
	// GlobalBatch is the number of draws in a full global batch of one job.
	GlobalBatch int
	Seed        int64
	Memory      *Memory
	Scores      []*Scores // by job
	Labels      []int32   // by sample; nil if there are none
	Dimensions  int       // of the embeddings that Report carries; 0 if there are none
	// Machine holds the bandwidths of a rank and of the shared storage, for systems that choose by
	// them; nil if unknown.
	Machine *NoPFSModel
	// StepSeconds returns the mean time of a job's last steps with all samples in memory, and with all
	// on storage; nil if unknown. Systems that weigh jobs by the possible gain of caching use it.
	StepSeconds func(job int) (cached, uncached float64)
	// BatchSeconds returns the total time of the batches in [begin, end) of a job's current epoch that
	// were answered; nil if unknown. Systems that measure the gain of caching use it.
	BatchSeconds func(job, begin, end int) float64
}

// trainers returns the number of trainers on all ranks.
func (c *PoolConfig) trainers() int { return c.Ranks * max(c.TrainersPerRank, 1) }

// NewPolicy returns a new policy of the system's, which must have one.
func (c *PoolConfig) NewPolicy() stager.Policy {
	return c.System.NewPolicy(PolicyConfig{System: c.System, Seed: c.Seed, Values: c.Values})
}

// Value returns the value of one of the system's options.
func (c *PoolConfig) Value(option string) float64 { return c.System.Value(c.Values, option) }
