package systems

import (
	"slices"

	"rankpool/scheduler"
)

// A Pool is a system's memory as a whole, of all ranks together: it answers draws, batch by batch,
// in the order in which training takes them. It keeps what it holds in a Memory, which counts and
// enforces the capacity. It is not safe for concurrent use, and the same calls give the same
// answers.
//
// For each epoch of a job a caller calls Begin; then, for each of its global batches, Batch and
// Trained. The batches of several jobs may alternate.
type Pool interface {
	// Begin starts an epoch of a job: ids are its draws in order. ids must not change afterwards.
	Begin(job, epoch int, ids []scheduler.SampleID)
	// Batch answers the draws of a global batch: answers[i] for b.IDs[i]. It brings in, keeps and
	// drops samples in its Memory.
	Batch(b *Batch, answers []Answer)
	// Trained tells what training reported of the batch that was answered last: r.IDs are the
	// samples that were served. The scores in PoolConfig.Scores have been brought up to date
	// before.
	Trained(b *Batch, r scheduler.Report)
}

// An Evaluator is a Pool that has some samples' losses measured in an epoch, by a forward pass
// without training: these losses enter the scores that the next epoch is drawn from.
type Evaluator interface {
	// Evaluate returns the samples, which are all in memory. It is called once in an epoch, before
	// batch scheduler.EvaluateAt.
	Evaluate(job int) []scheduler.SampleID
	// TakeCut is called at an epoch's cut, after Scores.TakeCut. epoch is the one that comes next.
	TakeCut(job, epoch int)
}

// A Resampler is a Pool that changes the draws of an epoch before they are drawn. It is not asked
// when the user chose the sampler.
type Resampler interface {
	// Resample is called at the cut of the epoch before. It returns the name of the sampler for the
	// epoch, and the scores to draw it with; scores itself must not be changed.
	Resample(job, epoch int, scores []float32) (sampler string, weights []float32)
}

// A Drawer is a Pool that draws an epoch itself. It is not asked when the user chose the sampler.
type Drawer interface {
	// Cut is called at the cut of the epoch before, before Draw: what the pool has learned by then is
	// what Draw draws by.
	Cut(job int)
	// Draw returns the draws of an epoch in order, from scores, which must not be changed. Place j is
	// of trainer j mod W, of W trainers.
	Draw(job, epoch int, scores []float32) []scheduler.SampleID
}

// A learning pool is a Drawer that ranks follow training with, see Learner.
type learning interface {
	Pool
	Drawer
	// appendState appends what Draw depends on, and the pool resumes from, to b.
	appendState(b []byte) []byte
	// restoreState brings an empty pool to where it was when appendState returned state. It returns an
	// error when it is of another pool.
	restoreState(state []byte) error
}

// A Foreseer is a Pool that learns when more is known of the draws to come: of all samples when
// the epochs of all jobs have begun, and of a batch's after Trained. next returns when a sample is
// drawn next, by any job, see scheduler.Use.
type Foreseer interface {
	Foresee(ids []scheduler.SampleID, next func(scheduler.SampleID) float64) // nil: all samples
}

// A Divider is a Pool that divides its memory between two caches.
type Divider interface {
	// Ratio returns the share of the first cache, in [0, 1], in the epoch that began last; false if
	// that cache always has the whole memory.
	Ratio() (float64, bool)
}

// Batch is a global batch of draws.
type Batch struct {
	Job, Epoch, Number int
	IDs                []scheduler.SampleID // drawn
	Rank               []int32              // whose trainer consumes each draw
	// time of the next draw of each sample, see scheduler.Use
	Next []float64
}

// Answer is how a draw is served.
type Answer struct {
	// the sample that is trained on; substitution if it is not the one drawn
	Served scheduler.SampleID
	Read   bool // it is read from storage now; else it is in memory
}

// Scores is what a system knows of the importance of samples, one entry a sample each. A pool reads
// them; its caller writes them.
type Scores struct {
	Of    []float32
	Known []bool // false: never scored, Of is the scorer's initial score
	// Cut is Of as it was at the cut of the epoch before, see scheduler.Plan.Cut: what the epoch
	// that begins is chosen by. It is a copy. AnyKnown says whether a sample was scored by then.
	Cut      []float32
	AnyKnown bool
}

// TakeCut has the epoch that comes next chosen by the scores as they are now.
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
	// TrainersPerRank are the training processes of each rank: trainer t is on rank t /
	// TrainersPerRank. 0 means 1.
	TrainersPerRank int
	Epochs          int // that are trained
	// GlobalBatch is the number of draws in a full global batch of one job.
	GlobalBatch int
	Seed        int64
	Memory      *Memory
	Scores      []*Scores // by job
	Labels      []int32   // by sample; nil if there are none
	Dimensions  int       // of the embeddings that Report carries; 0 if there are none
	// Machine has the bandwidths of a rank and of the storage that ranks share, for systems that
	// choose by them; nil if nothing is known.
	Machine *NoPFSModel
	// StepSeconds returns how long the last steps of a job take on average with all samples in
	// memory and with all on storage; nil if nothing is known. Systems that weigh jobs by what
	// caching could bring use it.
	StepSeconds func(job int) (cached, uncached float64)
	// BatchSeconds returns how long batches [begin, end) of a job's epoch under way took together,
	// of those that were answered; nil if nothing is known. Systems that measure what caching has
	// brought use it.
	BatchSeconds func(job, begin, end int) float64
}

// trainers is how many there are on all ranks.
func (c *PoolConfig) trainers() int { return c.Ranks * max(c.TrainersPerRank, 1) }

// Value returns the value of one of the system's options.
func (c *PoolConfig) Value(option string) float64 { return c.System.Value(c.Values, option) }
