package protocol

import (
	"fmt"
	"math"
	"slices"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// Ledger collects what training reports and folds it into scores, in order of global batch number,
// so that the scores do not depend on when a report arrived or from where. It is not safe for
// concurrent use.
//
// A global batch is folded when it is final for every trainer: its reports are there, or will never
// come. Folding stops at an epoch's cut until the scores for the next plan have been taken by Take.
type Ledger struct {
	scorer Scorer
	scores []float32
	total  float64   // of scores
	known  []uint64  // a bit per sample: scored by a report
	passes []*pass   // oldest first; the newest has the epoch under way
	buffer []float32 // scores of a batch
	// of the embeddings that are reported with losses; 0: none
	dimensions int
}

// pass is the ledger's knowledge of one planned epoch.
type pass struct {
	epoch    int
	ids      []draw.SampleID // from place start on
	consumer []uint16
	losses   []float32 // NaN: not reported
	// [place][dimension]; NaN: not reported
	embeddings []float32
	start      int // place in the epoch's draws at which ids begin, a multiple of batch
	batch      int
	draws      int
	cut        int
	taken      bool
	final      []int32 // by trainer: batches below are final
	folded     int     // batches below are folded
}

// NewLedger returns a ledger that starts with scores, one per sample, and owns them.
func NewLedger(scorer Scorer, scores []float32) *Ledger {
	l := &Ledger{scorer: scorer, scores: scores, known: make([]uint64, (len(scores)+63)/64)}
	l.sum()
	return l
}

// sum computes the total of the scores anew. The total that Fold updates is rounded differently
// from that of a ledger that is restored from these scores.
func (l *Ledger) sum() {
	l.total = 0
	for _, score := range l.scores {
		l.total += float64(score)
	}
}

// EqualScores returns equal scores, for samples without any history.
func EqualScores(samples int, initial float32) []float32 {
	return slices.Repeat([]float32{initial}, samples)
}

// Scores returns the scores as folded so far. The slice is the ledger's own and changes.
func (l *Ledger) Scores() []float32 { return l.scores }

// Rescore returns the command with the ledger's scores after a batch was folded; with Epoch -1,
// before any.
func (l *Ledger) Rescore(f Folded) Rescore {
	return Rescore{
		Epoch: f.Epoch, Batch: f.Batch, IDs: f.IDs, Scores: l.scores, Total: l.total,
		Known: l.Known,
	}
}

// Known reports whether a sample's score comes from a report. After a restore, only reports since
// then count.
func (l *Ledger) Known(id draw.SampleID) bool { return l.known[id/64]>>(id%64)&1 == 1 }

// Embed makes the ledger accept embeddings of the given length with the losses of epochs that are
// opened from now on.
func (l *Ledger) Embed(dimensions int) { l.dimensions = dimensions }

// Open passes the ledger the plan to which reports from now on refer. Opening an epoch that is open
// does nothing.
func (l *Ledger) Open(p *plan.Plan) {
	if l.find(p.Epoch) != nil {
		return
	}
	n := &pass{
		epoch: p.Epoch, ids: p.IDs, consumer: p.Consumer, batch: p.Batch, draws: len(p.IDs),
		cut:   p.Cut(),
		final: make([]int32, len(p.World)), losses: unreported(len(p.IDs)),
		embeddings: unreported(len(p.IDs) * l.dimensions),
	}
	if len(l.passes) > 0 {
		l.passes[len(l.passes)-1].keepTail(l.dimensions)
	}
	l.passes = append(l.passes, n)
	// Reports of two epochs ago have arrived, or never will.
	for len(l.passes) > 2 {
		l.foldPass(l.passes[0], true, nil)
		l.passes = l.passes[1:]
	}
}

// keepTail drops what is folded up to the cut, if the scores there have been taken.
func (p *pass) keepTail(dimensions int) {
	lo := p.behindCut()
	if !p.taken || p.folded < p.cut || lo <= 0 {
		return
	}
	p.ids, p.consumer, p.losses = slices.Clone(p.ids[lo:]), slices.Clone(p.consumer[lo:]),
		slices.Clone(p.losses[lo:])
	p.embeddings = slices.Clone(p.embeddings[lo*dimensions:])
	p.start += lo
}

// behindCut is where the draws from the cut on begin in ids. If the cut is the end of the epoch,
// the last batch may be short.
func (p *pass) behindCut() int { return min(p.cut*p.batch-p.start, len(p.ids)) }

func unreported(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

func (l *Ledger) find(epoch int) *pass {
	i := slices.IndexFunc(l.passes, func(p *pass) bool { return p.epoch == epoch })
	if i < 0 {
		return nil
	}
	return l.passes[i]
}

func (p *pass) batches() int { return (p.draws + p.batch - 1) / p.batch }

// Opened reports whether epoch is open.
func (l *Ledger) Opened(epoch int) bool { return l.find(epoch) != nil }

// Report records what a trainer, or AllTrainers, reports of its part of a global batch, in the
// plan's order, and makes all its earlier batches of that epoch final. embeddings are those of the
// samples, one after the other, each of the length passed to Embed; none may be reported. What is
// final already is ignored: a report that is sent twice counts once.
//
// It returns an error when the epoch is not open, the trainer or the batch is out of range, or the
// number of losses or of embeddings is wrong.
func (l *Ledger) Report(trainer, epoch, batch int, losses, embeddings []float32) error {
	p := l.find(epoch)
	if p == nil {
		return fmt.Errorf("scheduler: a report of epoch %d, which has no plan here", epoch)
	}
	if trainer < AllTrainers || trainer >= len(p.final) || batch < 0 || batch >= p.batches() {
		return fmt.Errorf("scheduler: a report of trainer %d, batch %d, of %d trainers, %d batches",
			trainer, batch, len(p.final), p.batches())
	}
	final, all := p.final, trainer == AllTrainers
	if !all {
		final = p.final[trainer : trainer+1]
	}
	lo := batch*p.batch - p.start
	if lo < 0 || batch < int(slices.Min(final)) {
		return nil
	}
	hi := min(lo+p.batch, len(p.ids))
	n := 0
	for i := lo; i < hi; i++ {
		if all || int(p.consumer[i]) == trainer {
			n++
		}
	}
	d := l.dimensions
	switch {
	case n != len(losses):
		return fmt.Errorf("scheduler: a report of %d losses for batch %d of epoch %d, of which "+
			"trainer %d has %d draws", len(losses), batch, epoch, trainer, n)
	case len(embeddings) != 0 && len(embeddings) != n*d:
		return fmt.Errorf("scheduler: a report of batch %d of epoch %d with %d numbers in "+
			"embeddings of %d draws, each of %d", batch, epoch, len(embeddings), n, d)
	}
	n = 0
	for i := lo; i < hi; i++ {
		if all || int(p.consumer[i]) == trainer {
			p.losses[i] = losses[n]
			if len(embeddings) > 0 {
				copy(p.embeddings[i*d:][:d], embeddings[n*d:])
			}
			n++
		}
	}
	for t := range final {
		final[t] = max(final[t], int32(batch+1))
	}
	return nil
}

// settle makes the newest epoch's batches before upTo final for every trainer.
func (l *Ledger) settle(upTo int) {
	p := l.passes[len(l.passes)-1]
	for t := range p.final {
		p.final[t] = max(p.final[t], int32(min(upTo, p.batches())))
	}
}

// Finish records that trainer has moved on to epoch: all its batches of the epochs opened before
// are final.
func (l *Ledger) Finish(trainer, epoch int) {
	for _, p := range l.passes {
		if p.epoch == epoch {
			break
		}
		p.final[trainer] = int32(p.batches())
	}
}

// Folded is a global batch whose losses have become scores. It does not change any more.
type Folded struct {
	Epoch, Batch int
	IDs          []draw.SampleID
	Losses       []float32 // of IDs; NaN: not reported
	// of IDs, one after the other, see Ledger.Embed; NaN: not reported
	Embeddings []float32
}

// Fold folds every batch that is final, and calls scored for each. It reports whether the cut was
// reached, that is, whether Take may be called.
func (l *Ledger) Fold(scored func(Folded)) bool {
	for i, p := range l.passes {
		if i > 0 && l.passes[i-1].folded < l.passes[i-1].batches() {
			break
		}
		l.foldPass(p, false, scored)
	}
	return l.Ready()
}

// Ready reports whether the scores for the plan after the newest epoch are all folded.
func (l *Ledger) Ready() bool {
	n := len(l.passes)
	return n == 0 || l.passes[n-1].folded >= l.passes[n-1].cut
}

// Take returns a copy of the scores from which the plan after the newest epoch is made, and lets
// folding continue past the cut. Ready must hold. The copy, once an epoch, takes 1.5 ms for 1.28
// million samples, and 29 ms for 14.2 million (2.8 GHz Xeon).
func (l *Ledger) Take() []float32 {
	if !l.Ready() {
		panic("scheduler: Take before the cut")
	}
	if len(l.passes) > 0 {
		l.passes[len(l.passes)-1].taken = true
	}
	return slices.Clone(l.scores)
}

func (l *Ledger) foldPass(p *pass, all bool, scored func(Folded)) {
	end := p.batches()
	if !all {
		if end = p.final0(); !p.taken {
			end = min(end, p.cut)
		}
	}
	for ; p.folded < end; p.folded++ {
		lo := p.folded*p.batch - p.start
		if lo < 0 {
			continue
		}
		hi := min(lo+p.batch, len(p.ids))
		l.foldBatch(p.ids[lo:hi], p.losses[lo:hi])
		if scored != nil {
			scored(Folded{
				p.epoch, p.folded, p.ids[lo:hi], p.losses[lo:hi],
				p.embeddings[lo*l.dimensions : hi*l.dimensions],
			})
		}
	}
}

func (l *Ledger) foldBatch(ids []draw.SampleID, losses []float32) {
	l.buffer = l.buffer[:0]
	for _, id := range ids {
		l.buffer = append(l.buffer, l.scores[id])
	}
	l.scorer.Score(Report{IDs: ids, Losses: losses}, l.buffer)
	for i, id := range ids {
		if Reported(losses[i]) {
			l.total += float64(l.buffer[i]) - float64(l.scores[id])
			l.scores[id] = l.buffer[i]
			l.known[id/64] |= 1 << (id % 64)
		}
	}
}
