package systems

import (
	"fmt"
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
)

// A Chooser is the sampler of a system that ranks run by plans: for each epoch it decides which
// samples are served, where each one lies, and which draws find their sample in memory. It runs the
// system's pool through the epoch at the cut of the previous epoch, when everything that the pool's
// answers depend on is known. So all ranks decide alike what is served when they plan an epoch, and
// never at delivery.
//
// Its memory is a book: it holds no bytes, and its capacity is that of all ranks together. Ranks
// may hold less; that costs reads, but does not change what is served.
//
// If the answers depend on more reports than scores, as SpiderCache's depend on embeddings, it
// chooses one epoch after each Begin, by the reports and by the memory at the end of the previous
// epoch. A protocol.Learner, see NewFollower, saves both at the cut.
//
// It is not safe for concurrent use.
type Chooser struct {
	cfg       ChooserConfig
	weighted  bool
	processes int // the number that it chooses for
	memory    *Memory
	scores    *Scores
	// nil before the first Draw, since callers of NewChooser hold locks: NoPFS's takes seconds to make
	// for a large data set
	pool Pool
	next int // the first epoch not chosen yet
	// by chosen epoch: the scores, if draws depend on them
	cuts map[int][]float32
	made map[int]*draw.Draws // the newest two, if draws do not depend on scores
}

// ChooserConfig configures a Chooser or a Learner. All ranks must use the same.
type ChooserConfig struct {
	System  *System
	Values  Values
	Sampler draw.SamplerConfig // seed, batch sizes; Name is ignored
	World   []int32            // rank of each trainer
	Ranks   int
	Epochs  int // that will be trained; 0: not known
	// CapacityBytes is the memory of all ranks together, see BookBytes.
	CapacityBytes int64
	Size          func(draw.SampleID) int64
	Initial       float32 // score of a sample that was never scored
	// for systems that need them: each sample's class, and the length of an embedding
	Labels     []int32
	Dimensions int
}

// BookBytes returns the memory of all ranks together, given as a share of the data. If all samples
// have one size, it is a whole number of samples.
func BookBytes(share float64, samples int, size func(draw.SampleID) int64) int64 {
	return wholeUnits(share, totalBytes(samples, size), unitOf(samples, size))
}

// ShareOf returns the memory of all ranks together as a share of the data, at most 1.
func ShareOf(bytes int64, samples int, size func(draw.SampleID) int64) float64 {
	return min(float64(bytes)/float64(max(totalBytes(samples, size), 1)), 1)
}

func totalBytes(samples int, size func(draw.SampleID) int64) (total int64) {
	for id := range draw.SampleID(samples) {
		total += size(id)
	}
	return total
}

// Chooses reports whether ranks run the system with a Chooser, for training that draws with its
// LiveSampler.
func (s *System) Chooses() bool { return s.Live == livePlaced || s.Live == liveServed }

// Learns reports the same for a Learner.
func (s *System) Learns() bool { return s.Live == liveLearned }

// follows reports whether the Chooser chooses by what a follower saved (see NewFollower), and not
// by the scores at all cuts.
func (s *System) follows() bool { return s.Chooses() && s.NeedsEmbeddings }

// Draws reports whether ranks run the system with its own sampler, a Chooser or a Learner, whose
// draws depend on the memory size.
func (s *System) Draws() bool { return s.Live != liveParts }

// Substitutes reports whether ranks that run the system may serve samples other than those drawn.
func (s *System) Substitutes() bool { return s.Live == liveServed }

// LiveSampler returns the name of the sampler that training draws with when ranks run the system. A
// sampler that no other system uses has the system's name.
func (s *System) LiveSampler() string {
	if s.Substitutes() || s.Learns() || s.follows() {
		return s.Name
	}
	return s.Sampler
}

// NewSampler returns the sampler that cfg describes, for ranks that run s. If that is the system's
// own sampler, it returns the sampler underneath, which shows whether draws depend on scores. It
// returns an error if cfg is wrong.
func (s *System) NewSampler(cfg draw.SamplerConfig) (draw.Sampler, error) {
	if s.Draws() && cfg.Name == s.LiveSampler() {
		cfg.Name = s.Sampler
	}
	return draw.NewSampler(cfg)
}

// NewChooser returns a chooser for cfg's system. It returns an error if the sampler cannot be
// created, or if cfg lacks something that the system needs.
func NewChooser(cfg ChooserConfig) (*Chooser, error) {
	cfg.Sampler.Name = cfg.System.LiveSampler()
	sampler, err := cfg.System.NewSampler(cfg.Sampler)
	if err != nil {
		return nil, err
	}
	if err := cfg.System.CheckEpochs(cfg.Epochs, cfg.Sampler.Samples); err != nil {
		return nil, err
	}
	c := &Chooser{cfg: cfg, weighted: sampler.Weighted(), processes: len(cfg.World)}
	if cfg.System.follows() {
		err = cfg.checkFollowed()
	}
	return c, err
}

// checkFollowed returns an error if cfg lacks something that a followed system needs.
func (cfg *ChooserConfig) checkFollowed() error {
	if cfg.Dimensions < 1 {
		return fmt.Errorf("systems: %s scores samples by their embeddings: give their length, "+
			"BatchSampler(…, embeddings=D)", cfg.System.Name)
	}
	if len(cfg.Labels) != cfg.Sampler.Samples {
		return fmt.Errorf("systems: %s needs the labels of %d samples, and has %d",
			cfg.System.Name, cfg.Sampler.Samples, len(cfg.Labels))
	}
	return nil
}

// Begin loads what a protocol.Learner saved at its cut, see NewFollower, so that the next epoch
// drawn is chosen by it. It does nothing for systems that are not followed. It returns an error if
// learned is damaged, or is from other samples or another memory.
func (c *Chooser) Begin(learned []byte) error {
	if !c.cfg.System.follows() {
		return nil
	}
	processes, reported, memory, _, err := c.cfg.parts(learned)
	if err != nil {
		return err
	}
	c.processes = processes
	c.begin()
	if err := c.pool.(followed).restore(reported, memory); err != nil {
		return fmt.Errorf("systems: what %s has learned: %w", c.cfg.System.Name, err)
	}
	return nil
}

// Follows reports whether the Chooser chooses by what training reported, see Begin.
func (c *Chooser) Follows() bool { return c.cfg.System.follows() }

// begin discards all state.
func (c *Chooser) begin() {
	cfg := &c.cfg
	c.made, c.next, c.cuts = map[int]*draw.Draws{}, 0, map[int][]float32{}
	c.memory = NewMemory(cfg.Sampler.Samples, cfg.Ranks, cfg.CapacityBytes, cfg.Size)
	c.scores = NewScores(protocol.EqualScores(cfg.Sampler.Samples, cfg.Initial))
	epochs := cfg.Epochs
	if epochs == 0 {
		epochs = math.MaxInt32
	}
	ranks := cfg.Ranks
	if cfg.System.follows() { // the processes may be those of other nodes
		ranks = 1
	}
	c.pool = cfg.System.NewPool(PoolConfig{
		System: cfg.System, Values: cfg.Values, Samples: cfg.Sampler.Samples, Jobs: 1,
		Ranks:           ranks,
		TrainersPerRank: max(c.processes/ranks, 1), Epochs: epochs,
		GlobalBatch: c.cfg.globalBatch(), Seed: cfg.Sampler.Seed,
		Memory: c.memory, Scores: []*Scores{c.scores},
		Labels: cfg.Labels, Dimensions: cfg.Dimensions,
	})
}

func (cfg *ChooserConfig) globalBatch() int { return cfg.Sampler.BatchSize * len(cfg.World) }

// Pad implements draw.Padder, for a system that draws by torch.
func (c *Chooser) Pad(processes int) draw.Sampler {
	if c.cfg.System.Sampler == "torch" && c.cfg.Sampler.Processes != processes {
		c.cfg.Sampler.Processes = processes
		c.pool = nil
	}
	return c
}

// Weighted implements draw.Sampler.
func (c *Chooser) Weighted() bool { return c.weighted }

// Draw implements draw.Sampler. The Draws hold the samples that are served. An epoch's choice
// depends on the choices for all earlier epochs. Drawing an earlier epoch that is not in made
// discards it and all later ones, and chooses it again; if draws depend on scores, call Follow
// first.
func (c *Chooser) Draw(epoch int, scores []float32) *draw.Draws {
	if c.cfg.System.follows() {
		if c.pool == nil {
			panic("systems: " + c.cfg.System.Name + " chooses an epoch after each Begin.")
		}
		d := c.choose(epoch, scores)
		c.pool, c.memory, c.scores = nil, nil, nil // frees a graph of all samples
		return d
	}
	if c.pool == nil {
		c.begin()
	}
	if d := c.made[epoch]; d != nil {
		return d
	}
	if epoch < c.next { // with scores, Follow was called
		c.begin()
	}
	if c.weighted {
		c.cuts[epoch] = scores
		return c.choose(epoch, scores)
	}
	for c.next < epoch {
		c.choose(c.next, nil)
	}
	delete(c.made, epoch-2)
	c.made[epoch] = c.choose(epoch, nil)
	return c.made[epoch]
}

// Follow chooses the epochs before the next one by cuts, the scores that their plans were made
// from, unless exactly these were chosen last, by the same.
func (c *Chooser) Follow(cuts []protocol.Cut) {
	if len(c.cuts) == len(cuts) && !slices.ContainsFunc(cuts,
		func(cut protocol.Cut) bool { return !slices.Equal(c.cuts[cut.Epoch], cut.Scores) }) {
		return
	}
	c.begin()
	for _, cut := range cuts {
		c.Draw(cut.Epoch, cut.Scores)
	}
}

// choose runs the pool through an epoch.
func (c *Chooser) choose(epoch int, scores []float32) *draw.Draws {
	if c.weighted {
		c.scores.Cut = scores
		c.scores.AnyKnown = slices.ContainsFunc(scores,
			func(s float32) bool { return s != c.cfg.Initial })
	}
	evaluator, evaluates := c.pool.(Evaluator)
	if evaluates && epoch > 0 {
		evaluator.TakeCut(0, epoch)
	}
	drawn := c.draw(epoch, scores)
	c.pool.Begin(0, epoch, drawn)
	choice := draw.Choice{Epoch: epoch, Held: make([]bool, c.cfg.Sampler.Samples)}
	c.memory.Packages() // discard those of an abandoned epoch
	var packages Packages
	batches := slices.Collect(slices.Chunk(drawn, c.cfg.globalBatch()))
	for b, ids := range batches {
		if evaluates && b == plan.EvaluateAt(len(batches)) {
			c.evaluate(&choice, evaluator.Evaluate(0), &packages)
		}
		c.batch(&choice, b, ids, &packages)
	}
	choice.Packages = packages.All()
	for id := range choice.Held {
		choice.Held[id] = c.memory.Has(draw.SampleID(id)) &&
			!c.memory.Fresh(draw.SampleID(id))
	}
	if f, ok := c.pool.(followed); ok && c.Follows() {
		choice.After = f.appendMemory(nil)
	}
	c.next = epoch + 1
	return choice.Draws()
}

// draw draws an epoch with the sampler and scores that the system's pool asks for.
func (c *Chooser) draw(epoch int, scores []float32) []draw.SampleID {
	name := c.cfg.System.Sampler
	if r, ok := c.pool.(Resampler); ok {
		name, scores = r.Resample(0, epoch, scores)
	}
	cfg := c.cfg.Sampler
	cfg.Name, cfg.Floor = name, draw.NoFloor // as published
	c.cfg.System.Sample(c.cfg.Values, &cfg)
	ids := mustSampler(c.cfg.System, cfg).Draw(epoch, scores).IDs
	if r, ok := c.pool.(Repeater); ok {
		ids = r.Repeat(0, epoch, ids)
	}
	return ids
}

// batch lets the pool answer a global batch.
func (c *Chooser) batch(
	choice *draw.Choice, number int, ids []draw.SampleID, packages *Packages,
) {
	b := &Batch{
		Epoch: choice.Epoch, Number: number, IDs: ids,
		Rank: make([]int32, len(ids)), Next: make([]float64, len(ids)),
	}
	for i := range b.Rank {
		b.Rank[i] = c.rankAt(i)
	}
	answers := make([]Answer, len(ids))
	c.pool.Batch(b, answers)
	c.memory.Moved() // forget them: nobody asks
	c.memory.Loaded()
	packages.Load(c.memory.Packages())
	c.add(choice, ids, answers, packages)
	if f, ok := c.pool.(followed); ok {
		first := len(choice.Served) - len(ids)
		f.Promote(b, choice.Served[first:])
		c.home(choice, first, answers)
	}
}

// home lets the rank that keeps a sample read it, for the draws from place first on, whose answers
// are given: the pool may have kept samples of a batch after it answered, on ranks with room.
func (c *Chooser) home(choice *draw.Choice, first int, answers []Answer) {
	for i, a := range answers {
		if a.Read && c.memory.Has(a.Served) {
			choice.Home[first+i] = uint16(c.memory.Home(a.Served))
		}
	}
}

// evaluate adds a forward pass over samples, which are in memory, to an epoch. It repeats samples
// to fill the last global batch.
func (c *Chooser) evaluate(
	choice *draw.Choice, samples []draw.SampleID, packages *Packages,
) {
	n := (len(samples) + c.cfg.globalBatch() - 1) / c.cfg.globalBatch()
	choice.Evaluated = draw.Batches{First: len(choice.Drawn) / c.cfg.globalBatch(), N: n}
	ids := make([]draw.SampleID, n*c.cfg.globalBatch())
	answers := make([]Answer, len(ids))
	for i := range ids {
		ids[i] = samples[i%len(samples)]
		answers[i] = Answer{Served: ids[i]}
	}
	c.add(choice, ids, answers, packages)
}

// add adds answered draws to choice.
func (c *Chooser) add(
	choice *draw.Choice, ids []draw.SampleID, answers []Answer, packages *Packages,
) {
	choice.Drawn = append(choice.Drawn, ids...)
	for i, a := range answers {
		home := int(c.rankAt(i % c.cfg.globalBatch()))
		if !a.Read || c.memory.Has(a.Served) {
			home = c.memory.Home(a.Served)
		}
		first := c.memory.Served(a.Served)
		if first && !a.Read {
			packages.Serve(len(choice.Served), a.Served, home)
		}
		choice.Served = append(choice.Served, a.Served)
		choice.Found = append(choice.Found, !a.Read && !first)
		choice.Home = append(choice.Home, uint16(home))
	}
}

// rankAt returns the rank of the trainer that gets place i of a global batch: trainer i mod W, as
// in DistributedSampler.
func (c *Chooser) rankAt(i int) int32 { return c.cfg.World[i%len(c.cfg.World)] }
