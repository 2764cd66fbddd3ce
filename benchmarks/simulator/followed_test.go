package simulator

import (
	"math"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/systems"
)

// follower runs the ranks of a system that chooses by what training reports besides losses.
type follower struct {
	t       *testing.T
	cfg     *Config
	scorer  protocol.Scorer
	ledger  *protocol.Ledger
	follows protocol.Learner
}

// config returns the configuration of choosers and learners with a number of trainers.
func (f *follower) config(trainers int) systems.ChooserConfig {
	n := f.cfg.Trace.Samples()
	size := func(draw.SampleID) int64 { return 3 }
	world := make([]int32, trainers)
	for trainer := range world {
		world[trainer] = f.cfg.rankOf(trainer)
	}
	batch := f.cfg.BatchSize * f.cfg.trainers()
	return systems.ChooserConfig{
		System: f.cfg.System, Values: f.cfg.Values, World: world,
		Ranks: int(slices.Max(world)) + 1, Epochs: f.cfg.Epochs, Size: size,
		Initial: f.scorer.Initial(batch), CapacityBytes: systems.BookBytes(f.cfg.Capacity, n, size),
		Labels: f.cfg.Trace.Labels, Dimensions: len(f.cfg.Trace.Embeddings[0][0]),
		Sampler: draw.SamplerConfig{
			Samples: n, Seed: f.cfg.Seed, BatchSize: batch / trainers, World: trainers,
		},
	}
}

func newFollower(t *testing.T, cfg *Config) *follower {
	t.Helper()
	f := &follower{t: t, cfg: cfg}
	var err error
	if f.scorer, err = protocol.NewScorer(cfg.System.Scorer); err != nil {
		t.Fatal(err)
	}
	batch := cfg.BatchSize * cfg.trainers()
	f.ledger = protocol.NewLedger(f.scorer,
		protocol.EqualScores(cfg.Trace.Samples(), f.scorer.Initial(batch)))
	f.ledger.Embed(len(cfg.Trace.Embeddings[0][0]))
	f.learner(cfg.trainers())
	return f
}

func (f *follower) learner(trainers int) {
	var err error
	if f.follows, err = systems.NewFollower(f.config(trainers)); err != nil {
		f.t.Fatal(err)
	}
}

// plan lets a new chooser choose an epoch.
func (f *follower) plan(epoch, trainers int, scores []float32, learned []byte) *plan.Plan {
	cfg := f.config(trainers)
	chooser, err := systems.NewChooser(cfg)
	if err == nil {
		err = chooser.Begin(learned)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return plan.New(plan.Config{
		Sampler: chooser, BatchSize: cfg.Sampler.BatchSize, World: cfg.World, Ranks: cfg.Ranks,
		Assignment: plan.AssignSampler,
	}, epoch, scores)
}

// train trains a batch.
func (f *follower) train(p *plan.Plan, b int) {
	f.t.Helper()
	lo, hi := p.Range(b)
	for trainer := range p.World {
		var ids []draw.SampleID
		for i := lo; i < hi; i++ {
			if int(p.Consumer[i]) == trainer {
				ids = append(ids, p.IDs[i])
			}
		}
		var r protocol.Report
		f.cfg.Trace.train(p.Epoch, ids, &r)
		if err := f.ledger.Report(trainer, p.Epoch, b, r.Losses,
			slices.Concat(r.Embeddings...)); err != nil {
			f.t.Fatal(err)
		}
	}
	f.fold()
}

func (f *follower) fold() {
	f.ledger.Fold(func(b protocol.Folded) { f.follows.Learn(b, f.ledger.Scores()) })
}

// run returns the draws of all epochs. In the middle of every odd epoch it restarts the ranks from
// a checkpoint, on half as many if they can be halved.
func (f *follower) run() []*draw.Draws {
	f.t.Helper()
	trainers := f.cfg.trainers()
	var all []*draw.Draws
	read := map[draw.SampleID]uint16{} // the ranks that read what was not found since
	scores := f.ledger.Take()
	learned := f.follows.Cut(scores, f.cfg.Trace.accuracyBefore(0))()
	for epoch := range f.cfg.Epochs {
		base, by := scores, learned
		p := f.plan(epoch, trainers, base, by)
		all = append(all, p.Draws)
		if trainers == f.cfg.trainers() {
			foundWhereRead(f.t, p, read)
		}
		f.ledger.Open(p)
		f.follows.Open(p, protocol.Known(by))
		for trainer := range p.World {
			f.ledger.Finish(trainer, epoch)
		}
		f.fold()
		for b := range p.Batches() {
			if epoch%2 == 1 && b == p.Batches()/2 {
				if trainers%2 == 0 {
					trainers /= 2
				}
				p = f.restart(p, b, trainers, base, by)
			}
			if f.train(p, b); b+1 == p.Cut() {
				scores = f.ledger.Take()
				learned = f.follows.Cut(scores, f.cfg.Trace.accuracyBefore(epoch))()
			}
		}
	}
	return all
}

// foundWhereRead checks that a draw that finds its sample in memory, its own or one served for it,
// finds it on the rank that read it. (Later it may move: a region of the memory drops it, and
// another keeps it elsewhere.)
func foundWhereRead(t *testing.T, p *plan.Plan, read map[draw.SampleID]uint16) {
	t.Helper()
	elsewhere := 0
	for i, id := range p.IDs {
		if reader, ok := read[id]; !p.Found(i) {
			read[id] = p.Home[i]
		} else if ok {
			delete(read, id)
			if reader != p.Home[i] {
				elsewhere++
			}
		}
	}
	if elsewhere > 0 {
		t.Errorf("epoch %d: %d draws find a sample on a rank that has not read it", p.Epoch,
			elsewhere)
	}
}

// restart resumes from the state of a checkpoint before a batch.
func (f *follower) restart(
	p *plan.Plan, batch, trainers int, base []float32, learned []byte,
) *plan.Plan {
	f.t.Helper()
	snap := f.ledger.Snapshot(base, batch)
	snap.Learned = protocol.Known(learned)
	snap.Stream = protocol.StreamID{
		Batch: f.cfg.BatchSize * f.cfg.trainers(), Embeddings: len(f.cfg.Trace.Embeddings[0][0]),
	}
	read, err := protocol.DecodeSnapshot(snap.Encode())
	if err != nil {
		f.t.Fatal(err)
	}
	f.ledger = protocol.RestoreLedger(f.scorer, read, trainers, false)
	f.learner(trainers)
	if err := f.follows.Begin(f.ledger.Scores(), read.Learned()); err != nil {
		f.t.Fatal(err)
	}
	again := f.plan(p.Epoch, trainers, read.Scores, read.Learned())
	if !slices.Equal(again.IDs, p.IDs) {
		f.t.Fatalf("epoch %d: %d trainers plan other samples", p.Epoch, trainers)
	}
	f.ledger.Open(again)
	f.follows.Open(again, read.Learned)
	f.ledger.Resume(read, batch)
	f.fold()
	return again
}

// TestFollowedIsSimulated checks that ranks serve the ids that the simulator serves, and find as
// many in memory, for every system that chooses by what training reports besides losses.
func TestFollowedIsSimulated(t *testing.T) {
	trace := loadShipped(t).first(600)
	of := func(s *systems.System) bool { return s.Chooses() && s.NeedsEmbeddings }
	everySetup(t, of, func(t *testing.T, system *systems.System, ranks int, capacity float64) {
		cfg := Config{
			Trace: trace, System: system, Capacity: capacity, Ranks: ranks,
			BatchSize: 32 / ranks, Epochs: len(trace.Losses), IDsDigest: true,
		}
		if ranks == 2 { // a last batch that is not full, and options
			cfg.TrainersPerRank, cfg.BatchSize, cfg.Seed = 3, 5, 7
			cfg.Values = systems.Values{"alpha": 0.7, "neighbormax": 50}
		}
		if ranks == 4 {
			cfg.Trace = measured(trace)
			if system.Name == "spidercache" {
				cfg.Values = systems.Values{"r_end": 0.1, "alpha": 0.7}
			}
		}
		want, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Values["r_end"] > 0 {
			accuraciesMatter(t, cfg, want)
		}
		followedIsSimulated(t, &cfg, want)
	})
}

// TestFollowedOnThreeRanks checks the same where a rank's memory is full before the others' are,
// and where some embeddings are not finite: they count as not reported.
func TestFollowedOnThreeRanks(t *testing.T) {
	system, err := systems.Find("spidercache")
	if err != nil {
		t.Fatal(err)
	}
	trace := loadShipped(t).first(257)
	for epoch, all := range trace.Embeddings {
		for id := epoch; id < len(all); id += 5 {
			all[id] = slices.Repeat([]float32{float32(math.NaN())}, len(all[id]))
		}
	}
	cfg := Config{
		Trace: trace, System: system, Capacity: 0.2, Ranks: 3, BatchSize: 5,
		Epochs: len(trace.Losses), IDsDigest: true,
	}
	want, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	followedIsSimulated(t, &cfg, want)
}

func followedIsSimulated(t *testing.T, cfg *Config, want *Result) {
	t.Helper()
	digest, hits, substituted := newIDsDigest(true), int64(0), int64(0)
	for _, d := range newFollower(t, cfg).run() {
		for b := range slices.Chunk(d.IDs, cfg.BatchSize*cfg.trainers()) {
			digest.add(b)
		}
		own, others, _ := outcomes(d, 1)
		hits, substituted = hits+own, substituted+others
	}
	if got := digest.hex(); got != want.IDsDigest {
		t.Errorf("the ids that ranks serve have the digest %s, the simulated ones %s", got,
			want.IDsDigest)
	}
	if hits != want.Hits || substituted != want.Substituted {
		t.Errorf("%d hits and %d substitutions, simulated %d and %d", hits, substituted, want.Hits,
			want.Substituted)
	}
	if (substituted > 0) != cfg.System.Substitutes() {
		t.Errorf("%d draws are substituted", substituted)
	}
}

// outcomes counts the draws that found their sample in memory, those that found another one there,
// and those of batches that are evaluated.
func outcomes(d *draw.Draws, batch int) (hits, substituted, evaluated int64) {
	for i := range d.IDs {
		switch {
		case d.Evaluated().Has(i / batch):
			evaluated++
		case !d.Found(i):
		case d.Substituted(i):
			substituted++
		default:
			hits++
		}
	}
	return hits, substituted, evaluated
}
