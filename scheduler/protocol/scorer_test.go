package protocol

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/schedulertest"
)

var nan32 = float32(math.NaN())

func mustScorer(t testing.TB, name string) Scorer {
	t.Helper()
	s, err := NewScorer(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSHADEEq6Example is the worked example of SHADE, §4.2.1: samples 5 and 8 are the most
// important ones of their mini-batches, and scores of the two batches are comparable though the
// losses are not.
func TestSHADEEq6Example(t *testing.T) {
	s := mustScorer(t, "logrank")
	var b1, b2 [3]float32 // samples 4, 5, 6 and 7, 8, 9
	s.Score(Report{Losses: []float32{0.3, 0.5, 0.4}}, b1[:])
	s.Score(Report{Losses: []float32{0.6, 1.2, 0.8}}, b2[:])
	want := [3]float32{float32(math.Log(10)), float32(math.Log(12)), float32(math.Log(11))}
	if b1 != want || b2 != want {
		t.Errorf("scores %v and %v, want %v for both", b1, b2, want)
	}
}

// TestSHADEEq6 compares with the equation written out.
func TestSHADEEq6(t *testing.T) {
	s := mustScorer(t, "logrank")
	value := rapid.OneOf(rapid.Float32Range(-3, 3), rapid.SampledFrom([]float32{
		0, float32(math.Copysign(0, -1)), 1, 1, nan32, float32(math.Inf(1)), float32(math.Inf(-1)),
	}))
	rapid.Check(t, func(t *rapid.T) {
		losses := rapid.SliceOfN(value, 0, 50).Draw(t, "losses")
		scores := make([]float32, len(losses))
		for i := range scores {
			scores[i] = -1
		}
		before := slices.Clone(losses)
		s.Score(Report{Losses: losses}, scores)
		for i, l := range before {
			smaller := 0
			for _, k := range before {
				if l > k && Reported(k) {
					smaller++
				}
			}
			want := float32(math.Log(float64(smaller + logRankBias)))
			if !Reported(l) {
				want = -1
			}
			if math.Abs(float64(scores[i]-want)) > 1e-6 {
				t.Fatalf("loss %d of %v has the score %v, want %v", i, before, scores[i], want)
			}
			if losses[i] != l && l == l {
				t.Fatalf("loss %d was changed", i)
			}
		}
	})
}

func TestLossScorer(t *testing.T) {
	scores := []float32{9, 9, 9, 9, 9}
	mustScorer(t, "loss").Score(Report{Losses: []float32{0.25, nan32, -1, float32(math.Inf(1)), 0}},
		scores)
	if want := []float32{0.25, 9, -1, 9, 0}; !slices.Equal(scores, want) {
		t.Errorf("scores %v, want %v", scores, want)
	}
}

// TestBatchLossScorer checks that the coarse score of Eq. 5 leaves out what is not reported;
// TestSHADEEq5 compares with the equation.
func TestBatchLossScorer(t *testing.T) {
	scores := []float32{9, 9, 9, 9, 9}
	s := mustScorer(t, "batchloss")
	s.Score(Report{Losses: []float32{0.25, nan32, -1.5, float32(math.Inf(1)), 0.5}}, scores)
	if want := []float32{-0.25, 9, -0.25, 9, -0.25}; !slices.Equal(scores, want) {
		t.Errorf("scores %v, want %v", scores, want)
	}
	s.Score(Report{Losses: []float32{nan32, nan32}}, scores[:2])
	if want := []float32{-0.25, 9}; !slices.Equal(scores[:2], want) {
		t.Errorf("nothing was reported, and the scores are %v, want %v", scores[:2], want)
	}
	schedulertest.MustPanic(t, "lengths that differ",
		func() { s.Score(Report{Losses: make([]float32, 2)}, scores) })
}

// TestReported checks that every scorer, and the ledger, treat a loss that is not finite as
// missing, and no other.
func TestReported(t *testing.T) {
	tiny := math.Float32frombits(1)
	losses := []float32{
		nan32, float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32,
		-math.MaxFloat32, tiny, float32(math.Copysign(0, -1)),
	}
	for i, l := range losses {
		if got, want := Reported(l), i > 2; got != want {
			t.Errorf("%v is reported: %v, want %v", l, got, want)
		}
	}
	ids := []draw.SampleID{0, 1, 2, 3, 4, 5, 6}
	for _, name := range ScorerNames() {
		l := NewLedger(mustScorer(t, name), EqualScores(len(ids), 77))
		l.foldBatch(ids, losses)
		for i, score := range l.Scores() {
			if kept := score == 77; kept != (i < 3) || kept == l.Known(ids[i]) {
				t.Errorf("%s: the loss %v gives the score %v, known: %v", name, losses[i], score,
					l.Known(ids[i]))
			}
		}
	}
}

func TestInitial(t *testing.T) {
	if got := mustScorer(t, "batchloss").Initial(64); got != 1 {
		t.Errorf("batchloss: the initial score is %v", got)
	}
	if got := mustScorer(t, "loss").Initial(64); got != 1 {
		t.Errorf("loss: the initial score is %v", got)
	}
	s := mustScorer(t, "logrank")
	losses, scores := make([]float32, 64), make([]float32, 64)
	for i := range losses {
		losses[i] = float32(i)
	}
	s.Score(Report{Losses: losses}, scores)
	sum := 0.0
	for _, score := range scores {
		sum += float64(score)
	}
	if got, want := float64(s.Initial(64)), sum/64; math.Abs(got-want) > 1e-6 {
		t.Errorf("logrank: the initial score is %v, the mean of a batch is %v", got, want)
	}
}

func TestDefaultScorer(t *testing.T) {
	want := map[string]string{
		"torch": "", "torch-sequential": "", "sequential": "", "uniform": "", "chunks": "",
		"pads": "logrank", "weighted": "loss", "weighted-once": "loss", "subset": "loss",
		"selective": "loss", "thrifty": "loss",
	}
	for _, name := range draw.SamplerNames() {
		got := DefaultScorer(name)
		if got != want[name] {
			t.Errorf("%s: scorer %q, want %q", name, got, want[name])
		}
		s, err := draw.NewSampler(draw.SamplerConfig{Name: name, Samples: 1, BatchSize: 1, World: 1})
		if err != nil || s.Weighted() != (got != "") {
			t.Errorf("%s: its scorer is %q (%v)", name, got, err)
		}
	}
	for _, name := range ScorerNames() {
		mustScorer(t, name)
	}
	if _, err := NewScorer("rank"); err == nil || !strings.Contains(err.Error(), "logrank, loss") {
		t.Errorf("an unknown scorer gives the error %v, which does not list the known ones", err)
	}
}
