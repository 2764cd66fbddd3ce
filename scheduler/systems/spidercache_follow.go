package systems

import (
	"math"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
	"rankpool/scheduler/protocol"
	"rankpool/scheduler/stager"
)

// followed is a pool that chooses an epoch by what training reported up to the cut of the previous
// epoch, and by what its memory holds at the end of that epoch. Ranks run it with a Chooser, which
// has the memory after each epoch that it chose, and a protocol.Learner, which stores the reports.
type followed interface {
	Pool
	Resampler
	// Promote does what Trained does with the memory. served are the samples served for the batch.
	Promote(b *Batch, served []draw.SampleID)
	// restore brings an empty pool to where it chooses the next epoch, from what was reported and from
	// the memory, see appendMemory; an empty memory means none was held. It returns an error if one of
	// them is from another pool.
	restore(reported, memory []byte) error
	// appendMemory appends to b what the memory holds, and everything else besides reports that the
	// next epoch is chosen by.
	appendMemory(b []byte) []byte
}

// spiderFollower stores what training reports for SpiderCache's Chooser: the newest embedding of
// each sample, and how many losses were those of right predictions. Its state at a cut is mostly
// embeddings, 4 bytes per number. They are copied when the cut's bytes are made; until then it
// keeps the bytes of the previous cut, and the batches since. The bytes also include the memory as
// the plan of the epoch under way leaves it, since the caches depend on earlier cuts, not on the
// reports.
type spiderFollower struct {
	cfg       ChooserConfig
	processes int
	learned   protocol.Learned  // at the last cut; nil: nothing
	batches   []protocol.Folded // since then; IDs are those drawn
	memory    []byte            // at the end of the epoch under way
	accuracy  float32           // measured before the last cut
	drawn     [2]spiderDrawn    // in the epoch before, and in the one under way
}

// spiderDrawn has the draws of an epoch from a place on. Embeddings belong to what was drawn, and
// what is folded has what was served. After a restart, what was drawn behind the cut of the epoch
// before is known from the cut's bytes alone.
type spiderDrawn struct {
	epoch, start int
	ids          []draw.SampleID
}

// NewFollower returns the protocol.Learner that follows training for the Chooser or Learner of
// cfg's system, or nil if the system needs none. It returns an error if the sampler cannot be
// created, or cfg lacks something.
func NewFollower(cfg ChooserConfig) (protocol.Learner, error) {
	switch {
	case cfg.System.Learns():
		return newLearnerFollower(cfg)
	case cfg.System.follows():
		if err := cfg.checkFollowed(); err != nil {
			return nil, err
		}
		return &spiderFollower{cfg: cfg, processes: len(cfg.World)}, nil
	}
	return nil, nil
}

// Begin implements protocol.Learner.
func (f *spiderFollower) Begin(_ []float32, learned []byte) error {
	now := spiderFollower{cfg: f.cfg, processes: len(f.cfg.World)}
	if learned != nil {
		chooser, err := NewChooser(f.cfg) // checks that it can be chosen by
		if err == nil {
			err = chooser.Begin(learned)
		}
		if err == nil {
			now.processes, _, now.memory, now.drawn[1], err = f.cfg.parts(learned)
		}
		if err != nil {
			return err
		}
		now.learned = protocol.Known(learned)
	}
	*f = now
	return nil
}

// Open implements protocol.Learner.
func (f *spiderFollower) Open(p *plan.Plan, learned protocol.Learned) {
	f.memory, f.learned = p.After(), learned
	if p.Epoch != f.drawn[1].epoch {
		f.drawn[0] = f.drawn[1]
	}
	f.drawn[1] = spiderDrawn{epoch: p.Epoch, ids: p.Drawn()}
}

// Learn implements protocol.Learner.
func (f *spiderFollower) Learn(b protocol.Folded, _ []float32) {
	for _, d := range f.drawn {
		lo := b.Batch*f.cfg.globalBatch() - d.start
		if b.Epoch == d.epoch && lo >= 0 && lo+len(b.IDs) <= len(d.ids) {
			b.IDs = d.ids[lo:][:len(b.IDs)]
		}
	}
	f.batches = append(f.batches, b)
}

// Cut implements protocol.Learner.
func (f *spiderFollower) Cut(_ []float32, accuracy float32) protocol.Learned {
	f.accuracy = accuracy
	at := *f
	if n, d := len(f.batches), &at.drawn[1]; n > 0 && f.batches[n-1].Epoch == d.epoch {
		folded := min((f.batches[n-1].Batch+1)*f.cfg.globalBatch()-d.start, len(d.ids))
		d.ids, d.start = d.ids[folded:], d.start+folded
	}
	f.batches = nil
	f.learned = at.bytes
	return f.learned
}

// bytes returns what was learned up to a cut: u32 processes, u64 capacity, u32 samples, u64 n, the
// n bytes of what was reported, u32 epoch, u32 place of its cut, u32 m, u32 drawn[m] from there on,
// and the memory.
func (f *spiderFollower) bytes() []byte {
	latest := newSpiderLatest(&PoolConfig{
		Samples: f.cfg.Sampler.Samples, Dimensions: f.cfg.Dimensions,
	}, 0)
	if f.learned != nil {
		_, reported, _, _, err := f.cfg.parts(f.learned())
		if err == nil {
			// the losses counted up to that cut were for the next epoch, and are not counted again
			_, err = latest.restore(reported)
		}
		if err != nil {
			panic("systems: " + err.Error()) // the follower made these bytes, or Begin checked them
		}
	}
	since := spiderSince{trained: len(f.batches) > 0, accuracy: f.accuracy}
	d := f.cfg.Dimensions
	for _, b := range f.batches {
		for i, id := range b.IDs {
			latest.take(id, b.Embeddings[i*d:][:d])
		}
		since.observe(b.Losses)
	}
	b := make([]byte, 0, 64+latest.bytes()+len(f.memory))
	b = f.cfg.appendHead(b, f.processes)
	b = le.AppendUint64(b, uint64(latest.bytes()))
	b = latest.append(b, since)
	tail := f.drawn[1]
	for _, x := range []int{tail.epoch, tail.start, len(tail.ids)} {
		b = le.AppendUint32(b, uint32(x))
	}
	for _, id := range tail.ids {
		b = le.AppendUint32(b, uint32(id))
	}
	return append(b, f.memory...)
}

// parts parses what Cut returned. It returns an error if learned is damaged, or is from other
// samples or another memory.
func (cfg *ChooserConfig) parts(learned []byte) (
	processes int, reported, memory []byte, drawn spiderDrawn, err error,
) {
	processes, rest, err := cfg.takeHead(learned)
	if err != nil {
		return 0, nil, nil, drawn, err
	}
	r := reader{rest}
	n := r.u64()
	if r.b == nil || n > uint64(len(r.b)) {
		return 0, nil, nil, drawn, errDamaged
	}
	reported, r.b = r.b[:n:n], r.b[n:]
	drawn.epoch, drawn.start = int(r.u32()), int(r.u32())
	if n = uint64(r.u32()); r.b == nil || n > uint64(len(r.b))/4 {
		return 0, nil, nil, drawn, errDamaged
	}
	for range n {
		id := r.u32()
		if int64(id) >= int64(cfg.Sampler.Samples) {
			return 0, nil, nil, drawn, errDamaged
		}
		drawn.ids = append(drawn.ids, draw.SampleID(id))
	}
	return processes, reported, r.b, drawn, nil
}

// What was reported, as bytes: u64 losses of right predictions, u64 losses, u32 1 if a batch was
// trained since the last cut, f32 measured accuracy, u32 dimensions; u8 for each sample, 1 if it
// has an embedding; then the embeddings, f32 per number.

const spiderReportedHead = 28

// spiderSince is what was reported since the last cut, besides embeddings.
type spiderSince struct {
	rightness
	trained  bool
	accuracy float32 // see protocol.Learner
}

// bytes returns how many bytes append appends.
func (l *spiderLatest) bytes() int {
	n := 0
	for _, has := range l.has {
		if has {
			n++
		}
	}
	return spiderReportedHead + len(l.has) + 4*l.cfg.Dimensions*n
}

func (l *spiderLatest) append(b []byte, since spiderSince) []byte {
	b = le.AppendUint64(le.AppendUint64(b, uint64(since.right)), uint64(since.reported))
	b = le.AppendUint32(le.AppendUint32(b, bit(since.trained)), math.Float32bits(since.accuracy))
	b = le.AppendUint32(b, uint32(l.cfg.Dimensions))
	for _, has := range l.has {
		b = append(b, byte(bit(has)))
	}
	for id, has := range l.has {
		if !has {
			continue
		}
		for _, x := range l.of(draw.SampleID(id)) {
			b = le.AppendUint32(b, math.Float32bits(x))
		}
	}
	return b
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// restore reads what append wrote into an empty l. It returns an error if that is damaged.
func (l *spiderLatest) restore(reported []byte) (since spiderSince, err error) {
	r := reader{reported}
	right, of := r.u64(), r.u64()
	trained, accuracy := r.u32() == 1, math.Float32frombits(r.u32())
	if r.u32() != uint32(l.cfg.Dimensions) || of > math.MaxInt32 || right > of {
		return since, errDamaged
	}
	has := r.take(len(l.has))
	for id, b := range has {
		l.has[id] = b == 1
	}
	if r.b == nil || l.bytes() != len(reported) {
		clear(l.has)
		return since, errDamaged
	}
	for id := range l.has {
		if !l.has[id] {
			continue
		}
		embedding := l.of(draw.SampleID(id))
		for k := range embedding {
			embedding[k] = math.Float32frombits(r.u32())
		}
		if !protocol.ReportedEmbedding(embedding) {
			return since, errDamaged
		}
	}
	return spiderSince{rightness{int(right), int(of)}, trained, accuracy}, nil
}

// The memory, as bytes: f64 ratio of the epoch, f64 latest ratio, u32 1 if β is active, plus 2 if
// accuracies were measured, u32 n, f64 deviation[n], u32 n, f64 accuracy[n]; u32 n and for each
// resident of the importance cache u32 id, f32 score, u32 rank; u32 n and for each node of the
// homophily cache, oldest first, u32 id, u32 rank. It leaves out neighbour lists: a new epoch has
// new ones.

// appendMemory implements followed.
func (p *spiderPool) appendMemory(b []byte) []byte {
	f64 := func(x float64) { b = le.AppendUint64(b, math.Float64bits(x)) }
	u32 := func(x uint32) { b = le.AppendUint32(b, x) }
	f64(p.epochs.ratio)
	f64(p.ratio.ratio)
	u32(bit(p.ratio.active) + 2*bit(p.ratio.measured))
	for _, series := range [][]float64{p.ratio.deviations, p.ratio.accuracies} {
		u32(uint32(len(series)))
		for _, x := range series {
			f64(x)
		}
	}
	u32(uint32(p.importance.Len()))
	for id := range draw.SampleID(len(p.scored)) {
		if p.importance.Resident(id) {
			u32(uint32(id))
			u32(math.Float32bits(p.graphs[0].scores[id]))
			u32(uint32(p.memory.Home(id)))
		}
	}
	u32(uint32(len(p.homophily.queue)))
	for _, node := range p.homophily.queue {
		u32(uint32(node.id))
		u32(uint32(p.memory.Home(node.id)))
	}
	return b
}

// restore implements followed.
func (p *spiderPool) restore(reported, memory []byte) (err error) {
	since, err := p.epochs.latest[0].restore(reported)
	if err != nil {
		return err
	}
	p.ratio.rightness, p.trained, p.ratio.told = since.rightness, since.trained, since.accuracy
	if len(memory) == 0 {
		return nil
	}
	r := reader{memory}
	ratio := r.f64()
	p.epochs.ratio, p.ratio.ratio = ratio, r.f64()
	is := r.u32()
	p.ratio.active, p.ratio.measured = is&1 == 1, is&2 == 2
	if p.ratio.deviations, err = r.f64s(r.u32()); err != nil {
		return err
	}
	if p.ratio.accuracies, err = r.f64s(r.u32()); err != nil {
		return err
	}
	if !(ratio >= 0 && ratio <= 1) || !(p.ratio.ratio >= 0 && p.ratio.ratio <= 1) {
		return errDamaged
	}
	p.divide(ratio)
	ranks := uint32(p.memory.ranks)
	for range r.u32() {
		id, score, rank := r.u32(), math.Float32frombits(r.u32()), r.u32()
		if r.b == nil || !p.new(id) || !(score >= 0) {
			return errDamaged
		}
		u := stager.Use{ID: draw.SampleID(id), Score: score}
		p.memory.Draw(p.importance, u, int32(rank%ranks))
	}
	for range r.u32() {
		id, rank := r.u32(), r.u32()
		if r.b == nil || !p.new(id) {
			return errDamaged
		}
		p.homophily.Push(draw.SampleID(id), nil, int32(rank%ranks))
	}
	if r.b == nil || len(r.b) > 0 {
		return errDamaged
	}
	return nil
}

// new reports whether sample id exists and is not in memory.
func (p *spiderPool) new(id uint32) bool {
	return int64(id) < int64(len(p.scored)) && !p.memory.Has(draw.SampleID(id))
}

// f64s reads n numbers, which must be finite.
func (r *reader) f64s(n uint32) ([]float64, error) {
	if uint64(n)*8 > uint64(len(r.b)) {
		return nil, errDamaged
	}
	var all []float64
	for range n {
		x := r.f64()
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil, errDamaged
		}
		all = append(all, x)
	}
	return all, nil
}
