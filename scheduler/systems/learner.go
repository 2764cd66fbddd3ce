package systems

import (
	"fmt"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// A Learner is the sampler of a system that learns while an epoch is trained, and draws the next
// epoch by what it learned. It runs an epoch's batches through the system's pool, with the memory
// of all ranks. So that training does not wait for it, the follower (NewFollower) only stores the
// batches, and whoever makes a plan runs a Learner over them.
//
// Its memory holds no bytes. What ranks hold is decided by their policy, and may be less.
//
// It is not safe for concurrent use.
type Learner struct {
	cfg       ChooserConfig
	processes int // that it draws for
	scores    *Scores
	pool      learning
}

// NewLearner returns a learner for cfg's system that has learned nothing. It returns an error if
// the sampler cannot be created.
func NewLearner(cfg ChooserConfig) (*Learner, error) {
	cfg.Sampler.Name = cfg.System.LiveSampler()
	if _, err := cfg.System.NewSampler(cfg.Sampler); err != nil {
		return nil, err
	}
	l := &Learner{cfg: cfg}
	l.begin(protocol.EqualScores(cfg.Sampler.Samples, cfg.Initial), len(cfg.World))
	return l, nil
}

func (l *Learner) begin(scores []float32, processes int) {
	cfg := &l.cfg
	l.processes = processes
	l.scores = NewScores(slices.Clone(scores))
	l.pool = cfg.System.NewPool(PoolConfig{
		System: cfg.System, Values: cfg.Values, Samples: cfg.Sampler.Samples, Jobs: 1,
		Ranks: 1, TrainersPerRank: processes, GlobalBatch: cfg.globalBatch(),
		Seed:   cfg.Sampler.Seed,
		Memory: NewMemory(cfg.Sampler.Samples, 1, cfg.CapacityBytes, cfg.Size),
		Scores: []*Scores{l.scores},
	}).(learning)
}

// Weighted implements draw.Sampler.
func (l *Learner) Weighted() bool { return true }

// Draw implements draw.Sampler.
func (l *Learner) Draw(epoch int, scores []float32) *draw.Draws {
	ids := l.pool.Draw(0, epoch, scores)
	if l.cfg.Sampler.DropLast {
		ids = ids[:len(ids)-len(ids)%(l.cfg.Sampler.BatchSize*len(l.cfg.World))]
	}
	return draw.Listed(ids).Draw(epoch, nil)
}

// Begin discards all state and starts from scores and from learned, which Cut returned; nil means
// nothing was learned. It keeps neither slice. learned includes the number of processes to draw
// for, so that a training that continues with fewer has the same epochs.
func (l *Learner) Begin(scores []float32, learned []byte) error {
	if learned == nil {
		l.begin(scores, len(l.cfg.World))
		return nil
	}
	processes, rest, err := l.cfg.takeHead(learned)
	if err != nil {
		return err
	}
	l.begin(scores, processes)
	if err := l.pool.restoreState(rest); err != nil {
		return fmt.Errorf("systems: what %s has learned: %w", l.cfg.System.Name, err)
	}
	return nil
}

// appendHead appends the head of what was learned: u32 processes, u64 capacity, u32 samples.
func (cfg *ChooserConfig) appendHead(b []byte, processes int) []byte {
	b = le.AppendUint32(b, uint32(processes))
	b = le.AppendUint64(b, uint64(cfg.CapacityBytes))
	return le.AppendUint32(b, uint32(cfg.Sampler.Samples))
}

// takeHead parses what appendHead appended. It returns an error if learned is damaged, or is from
// other samples or another memory.
func (cfg *ChooserConfig) takeHead(learned []byte) (processes int, rest []byte, err error) {
	r := reader{learned}
	of, capacity, samples := r.u32(), r.u64(), r.u32()
	switch {
	case r.b == nil || of < 1 || of > maxProcesses:
		err = fmt.Errorf("systems: what %s has learned is damaged", cfg.System.Name)
	case int(samples) != cfg.Sampler.Samples || int64(capacity) != cfg.CapacityBytes:
		err = fmt.Errorf("systems: %s has learned with %d samples and a memory of %d bytes, "+
			"and has %d and %d bytes now: give the same --memory",
			cfg.System.Name, samples, capacity, cfg.Sampler.Samples, cfg.CapacityBytes)
	}
	return int(of), r.b, err
}

// maxProcesses bounds the number of processes that takeHead accepts; WORLD_SIZE is at most as
// large.
const maxProcesses = 1<<16 - 1

// Learn adds a trained batch: scores[i] is the score of f.IDs[i].
func (l *Learner) Learn(f protocol.Folded, scores []float32) {
	b := &Batch{
		Epoch: f.Epoch, Number: f.Batch, IDs: f.IDs, Rank: make([]int32, len(f.IDs)),
		Next: make([]float64, len(f.IDs)),
	}
	l.pool.Batch(b, make([]Answer, len(f.IDs)))
	for i, id := range f.IDs {
		if protocol.Reported(f.Losses[i]) {
			l.scores.Of[id], l.scores.Known[id] = scores[i], true
		}
	}
	l.pool.Trained(b, protocol.Report{IDs: f.IDs, Losses: f.Losses})
}

// Cut ends an epoch's learning, and returns the state by which the next epoch is drawn. accuracy is
// that of protocol.Learner.
func (l *Learner) Cut(accuracy float32) []byte {
	l.pool.Measure(0, accuracy)
	l.pool.Cut(0)
	return l.pool.appendState(l.cfg.appendHead(nil, l.processes))
}

// learnerFollower stores the batches since the last cut. A Learner runs over them only when the
// bytes of the next cut are made: an epoch's batches take some time to pass through the pool, and
// the state has at least 4 bytes per sample.
type learnerFollower struct {
	cfg     ChooserConfig
	scores  []float32        // at the last cut; nil: equal
	learned protocol.Learned // at the last cut; nil: nothing
	batches []learnedBatch
	// measured before the newest cut
	accuracy float32
}

// learnedBatch is a batch, and its samples' scores after it was trained.
type learnedBatch struct {
	protocol.Folded
	scores []float32
}

func newLearnerFollower(cfg ChooserConfig) (*learnerFollower, error) {
	if _, err := NewLearner(cfg); err != nil {
		return nil, err
	}
	return &learnerFollower{cfg: cfg}, nil
}

// Begin implements protocol.Learner.
func (f *learnerFollower) Begin(scores []float32, learned []byte) error {
	now := learnerFollower{
		cfg: f.cfg, scores: slices.Clone(scores), learned: protocol.Known(slices.Clone(learned)),
	}
	if _, err := now.learner(); err != nil { // checks that it can be drawn by
		return err
	}
	*f = now
	return nil
}

// learner returns a Learner with the state of the last cut.
func (f *learnerFollower) learner() (*Learner, error) {
	l, err := NewLearner(f.cfg)
	if err != nil || f.scores == nil {
		return l, err
	}
	var learned []byte
	if f.learned != nil {
		learned = f.learned()
	}
	return l, l.Begin(f.scores, learned)
}

// Open implements protocol.Learner. learned is what Cut returned or Begin got.
func (f *learnerFollower) Open(_ *plan.Plan, learned protocol.Learned) {
	if learned != nil {
		f.learned = learned // whoever calls Open may keep its bytes once they are made
	}
}

// Learn implements protocol.Learner.
func (f *learnerFollower) Learn(b protocol.Folded, scores []float32) {
	of := make([]float32, len(b.IDs))
	for i, id := range b.IDs {
		of[i] = scores[id]
	}
	f.batches = append(f.batches, learnedBatch{b, of})
}

// Cut implements protocol.Learner.
func (f *learnerFollower) Cut(scores []float32, accuracy float32) protocol.Learned {
	f.accuracy = accuracy
	at := *f
	f.scores, f.batches = scores, nil
	f.learned = at.bytes
	return f.learned
}

// bytes returns the state at a cut.
func (f *learnerFollower) bytes() []byte {
	l, err := f.learner()
	if err != nil {
		panic("systems: " + err.Error()) // the follower made these bytes, or Begin checked them
	}
	for _, b := range f.batches {
		l.Learn(b.Folded, b.scores)
	}
	return l.Cut(f.accuracy)
}

// Prepare brings a system's own sampler to the state in which it draws the epoch of m. It does
// nothing for other samplers.
func Prepare(s draw.Sampler, m *protocol.MakePlan) error {
	var learned []byte
	if m.Learned != nil {
		learned = m.Learned()
	}
	switch own := s.(type) {
	case draw.Resumer:
		return own.Resume(learned)
	case *Learner:
		return own.Begin(m.Scores, learned)
	case *Chooser:
		if own.Follows() {
			return own.Begin(learned)
		}
		if own.Weighted() {
			own.Follow(m.Cuts)
		}
	}
	return nil
}
