package stager

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// TestDivideQuiver uses the data sets of Quiver's §7.6, LibriSpeech, OpenImages and ImageNet, each
// with four jobs on four GPUs, and the times of Table 3: ImageNet, which gains most per byte, is
// kept whole at 200 GB, as there. Where Quiver keeps two chunks of the others, the next one is kept
// in part here: LibriSpeech, then OpenImages.
func TestDivideQuiver(t *testing.T) {
	const gb, gib = 1e9, 1 << 30
	claims := []Claim{
		{WholeBytes: 90 * gb, Gain: 16 * 1614. / 1234},
		{WholeBytes: 531 * gb, Gain: 16 * 2874. / 1274},
		{WholeBytes: 154 * gb, Gain: 16 * 2505. / 646},
	}
	// Benefit per GB: ImageNet 0.403, LibriSpeech 0.233, OpenImages 0.068.
	for _, c := range []struct {
		capacity int64
		want     []int64
	}{
		{100 * gib, []int64{0, 0, 100 * gib}},
		{200 * gib, []int64{200*gib - 154*gb, 0, 154 * gb}},
		{700 * gib, []int64{90 * gb, 700*gib - 244*gb, 154 * gb}},
		{780 * gib, []int64{90 * gb, 531 * gb, 154 * gb}},
	} {
		if got := Divide(claims, c.capacity); !slices.Equal(got, c.want) {
			t.Errorf("%d bytes: %v, want %v", c.capacity, got, c.want)
		}
	}
}

// TestDivide uses data sets without a benefit, and those whose benefit is unknown.
func TestDivide(t *testing.T) {
	for name, c := range map[string]struct {
		claims []Claim
		want   []int64
	}{
		"unknown":    {[]Claim{{100, 60, -1}, {100, 40, -1}}, []int64{60, 40}},
		"one known":  {[]Claim{{100, 60, 2}, {100, 40, -1}}, []int64{60, 40}},
		"one gains":  {[]Claim{{80, 60, 0}, {80, 40, 1}}, []int64{20, 80}},
		"none gains": {[]Claim{{150, 60, 0}, {50, 40, 0}}, []int64{75, 25}},
		"room":       {[]Claim{{30, 60, 0}, {20, 40, 1}}, []int64{30, 20}},
	} {
		if got := Divide(c.claims, 100); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestDivideFits checks that no more memory is given out than there is, and that the part of a data
// set does not shrink when its benefit grows.
func TestDivideFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.Int64Range(0, 1e12).Draw(t, "capacity")
		claims := make([]Claim, rapid.IntRange(1, 5).Draw(t, "claims"))
		for i := range claims {
			claims[i] = Claim{
				WholeBytes: rapid.Int64Range(1, 1e12).Draw(t, "whole"),
				EvenBytes:  capacity / int64(len(claims)),
				Gain:       float64(rapid.IntRange(-1, 20).Draw(t, "gain")),
			}
		}
		parts := Divide(claims, capacity)
		sum := int64(0)
		for i, part := range parts {
			if part < 0 || part > claims[i].WholeBytes && claims[i].Gain >= 0 {
				t.Fatalf("%+v: %v", claims, parts)
			}
			sum += part
		}
		if sum > capacity {
			t.Fatalf("%+v: %v of %d", claims, parts, capacity)
		}
		i := rapid.IntRange(0, len(claims)-1).Draw(t, "grows")
		if claims[i].Gain < 0 {
			return
		}
		claims[i].Gain++
		if more := Divide(claims, capacity); more[i] < parts[i] {
			t.Fatalf("%+v: %v, with less benefit %v", claims, more, parts)
		}
	})
}

// TestWeights checks the weights of lanes: the largest gain has 1, a lane that gains nothing an
// eighth, and all are equal as long as one is unknown.
func TestWeights(t *testing.T) {
	for name, c := range map[string]struct{ gains, want []float64 }{
		"none":         {nil, []float64{}},
		"unknown":      {[]float64{3, -1}, []float64{1, 1}},
		"two":          {[]float64{8, 2}, []float64{1, 0.25}},
		"one is idle":  {[]float64{0, 2}, []float64{idleWeight, 1}},
		"all are idle": {[]float64{0, 0}, []float64{1, 1}},
	} {
		if got := Weights(c.gains); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestWeightsICache checks the rule of iCACHE's §III-D: the weights of jobs are in proportion to
// Ratio_benefit, and one that is not eligible gives way to those that are. The soonest weighted use
// of a sample decides whether it stays.
func TestWeightsICache(t *testing.T) {
	gain := func(without time.Duration) float64 {
		b := NewBenefit(0, 1)
		b.Begin(0, 0, 400, true)
		complete(b, 1, b.Begin(1, 0, 400, true), 1, time.Second, without)
		return b.Gain(1)
	}
	gains := []float64{gain(3 * time.Second), gain(1500 * time.Millisecond), gain(time.Second)}
	weights := Weights(gains)
	if ratio := weights[0] / weights[1]; math.Abs(ratio-2) > 0.1 || weights[2] != idleWeight {
		t.Errorf("jobs with benefits of 3, 1.5 and 1 weigh %v", weights)
	}
	st := &store{now: 100}
	uses := make([]float64, len(weights))
	for i, weight := range weights { // all go at one pace, and use a sample of theirs at 0.5
		plan := &plan.Plan{Draws: &draw.Draws{IDs: make([]draw.SampleID, 90)}}
		p := &partition{pace: 1. / 3, weight: weight, plan: plan}
		uses[i] = st.common(p, 0.5) - st.now
	}
	if !slices.IsSorted(uses) || math.Abs(uses[1]/uses[0]-2) > 0.1 {
		t.Errorf("their uses are %v away", uses)
	}
}

// TestLaneThatGainsNothing runs two lanes in step. The one that gains nothing leaves the memory to
// the other, and takes it back when it gains.
func TestLaneThatGainsNothing(t *testing.T) {
	const samples, perBatch, epochs = 600, 4, 3
	w := newLanes(t, 1, 1, samples, 0.3, "torch", perBatch)
	s := w.ranks[0].stager
	train := func(lanes ...int) (hits []int) {
		for range epochs * samples / perBatch {
			for _, number := range lanes {
				w.train(w.lanes[number])
			}
			for w.one() {
			}
		}
		for _, number := range lanes {
			hits = append(hits, s.PlannedHits(number, w.lanes[number].epoch-1))
		}
		return hits
	}
	w.open(1, "torch", []int32{0}, perBatch)
	even := train(0, 1)
	w.ranks[0].step(Weighed{Lane: 1, Weight: idleWeight})
	idle := train(0, 1)
	w.ranks[0].step(Weighed{Lane: 1, Weight: 1})
	again := train(0, 1)
	if idle[0] < even[0]*6/5 || idle[1] > even[1]/2 || again[0] > even[0]*11/10 ||
		again[1] < even[1]*4/5 {
		t.Errorf("hits of an epoch: both gain: %v; the second gains nothing: %v; both again: %v", even,
			idle, again)
	}
	w.settled()
}
