package protocol

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

const embeddingNumbers = 3 // in an embedding here

// embedded is a ledger for two trainers, with epochs of 24 batches of 4 draws.
type embedded struct {
	t      *testing.T
	plans  plan.Config
	ledger *Ledger
	folded []string
}

func newEmbedded(t *testing.T) *embedded {
	t.Helper()
	sampler, err := draw.NewSampler(
		draw.SamplerConfig{Name: "weighted", Samples: 96, Seed: 2, BatchSize: 2, World: 2})
	if err != nil {
		t.Fatal(err)
	}
	e := &embedded{t: t, ledger: NewLedger(loss{}, EqualScores(96, 1))}
	e.plans = plan.Config{
		Sampler: sampler, BatchSize: 2, World: []int32{0, 0}, Ranks: 1, Assignment: plan.AssignSampler,
	}
	e.ledger.Embed(embeddingNumbers)
	return e
}

// report reports a trainer's part of a batch.
func (e *embedded) report(p *plan.Plan, trainer, batch int) {
	e.t.Helper()
	lo, hi := p.Range(batch)
	var losses, embeddings []float32
	for i := lo; i < hi; i++ {
		if int(p.Consumer[i]) != trainer {
			continue
		}
		losses = append(losses, float32(i%7))
		for k := range embeddingNumbers {
			embeddings = append(embeddings, float32(100*p.Epoch+10*i+k))
		}
	}
	err := e.ledger.Report(trainer, p.Epoch, batch, losses, embeddings)
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *embedded) fold() {
	e.ledger.Fold(func(f Folded) {
		e.folded = append(e.folded, fmt.Sprint(f.Epoch, f.Batch, f.IDs, f.Embeddings))
	})
}

// train trains batches of an epoch.
func (e *embedded) train(p *plan.Plan, from, to int) (cut []float32) {
	for b := from; b < to; b++ {
		e.report(p, 1, b) // the other one is behind
		e.fold()
		e.report(p, 0, b)
		if e.fold(); b+1 == p.Cut() {
			cut = e.ledger.Take()
		}
	}
	e.fold()
	return cut
}

// TestEmbeddingsOutliveARestart: a restored ledger folds the same embeddings as the one before it,
// in the same order: those of the tail of an epoch, and of the part of the next one that was
// trained.
func TestEmbeddingsOutliveARestart(t *testing.T) {
	e := newEmbedded(t)
	first := plan.New(e.plans, 0, e.ledger.Take())
	e.ledger.Open(first)
	last := first.Batches() - 1
	base := e.train(first, 0, last)
	e.report(first, 0, last) // the other one's part of the last batch never comes
	second := plan.New(e.plans, 1, base)
	e.ledger.Open(second)
	e.ledger.Finish(0, 1)
	e.ledger.Finish(1, 1)
	e.train(second, 0, 3)
	if len(e.folded) != first.Batches()+3 {
		t.Fatalf("%d batches were folded", len(e.folded))
	}
	snap := e.ledger.Snapshot(base, 3)
	snap.Stream = StreamID{Batch: 4, Samples: 96, Embeddings: embeddingNumbers}
	if n := len(snap.TailEmbeddings); n != embeddingNumbers*len(snap.TailIDs) || n == 0 {
		t.Fatalf("the tail of %d draws has %d numbers", len(snap.TailIDs), n)
	}
	read, err := DecodeSnapshot(snap.Encode())
	if err != nil || read.Digest() != snap.Digest() {
		t.Fatal("the state is read as another one: ", err)
	}
	again := newEmbedded(t)
	again.ledger = RestoreLedger(loss{}, read, 2, false)
	again.ledger.Open(second)
	again.ledger.Resume(read, 3)
	again.fold()
	again.train(second, 3, second.Batches())
	e.train(second, 3, second.Batches())
	if want := e.folded[first.Cut():]; !slices.Equal(again.folded, want) {
		t.Errorf("after a restart\n%q\nare folded, without\n%q", again.folded, want)
	}
	read.TailEmbeddings[0]++
	if read.Digest() == snap.Digest() {
		t.Error("another embedding gives the same digest")
	}
}

// TestEmbeddingsOfOtherSizes: embeddings of other sizes are refused, and the first report counts.
func TestEmbeddingsOfOtherSizes(t *testing.T) {
	e := newEmbedded(t)
	p := plan.New(e.plans, 0, e.ledger.Take())
	e.ledger.Open(p)
	if err := e.ledger.Report(0, 0, 0, []float32{1, 2}, make([]float32, 5)); err == nil {
		t.Error("5 numbers were taken as two embeddings of 3")
	}
	e.report(p, 0, 0)
	e.report(p, 1, 0)
	if err := e.ledger.Report(0, 0, 0, []float32{1, 2}, make([]float32, 6)); err != nil {
		t.Error(err)
	}
	if err := e.ledger.Report(0, 0, 1, []float32{1, 2}, nil); err != nil {
		t.Error(err)
	}
	e.report(p, 1, 1)
	var all [][]float32
	e.ledger.Fold(func(f Folded) { all = append(all, f.Embeddings) })
	if len(all) != 2 || all[0][0] != 0 || all[0][embeddingNumbers] != 10 {
		t.Errorf("the embeddings are %v", all)
	}
	for i, x := range all[1] {
		if draw := i / embeddingNumbers; ReportedEmbedding(all[1][i:i+1]) != (draw%2 == 1) {
			t.Errorf("number %d of the batch that one trainer did not report is %v", i, x)
		}
	}
}

func TestReportedEmbedding(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		embedding []float32
		want      bool
	}{
		{[]float32{0, -3}, true},
		{[]float32{1, inf}, false},
		{[]float32{-inf, 1}, false},
		{[]float32{1, float32(math.NaN())}, false},
	} {
		if got := ReportedEmbedding(c.embedding); got != c.want {
			t.Errorf("%v is reported: %v", c.embedding, got)
		}
	}
}
