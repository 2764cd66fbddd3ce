package scheduler

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

// plansOfThisVersion has a digest of two epochs' draws and cut for every sampler.
var plansOfThisVersion = map[string]string{
	"pads":          "def13e200841505a",
	"selective":     "99fa6784bacd4e45",
	"sequential":    "bb228664129c9b08",
	"subset":        "fdb09bf29c623c31",
	"torch":         "f13aaeeffeaa3708",
	"uniform":       "e7ebec501eeaec7f",
	"weighted":      "def13e200841505a",
	"weighted-once": "efaef8adca574873",
}

// TestPlansOfThisVersion checks that the same sampler, seed and scores give the draws that they always gave in this PlanVersion.
// When it fails, trainings that are under way cannot go on with what was changed: count PlanVersion up, and note the new digests.
func TestPlansOfThisVersion(t *testing.T) {
	if PlanVersion != 1 {
		t.Fatal("the digests are of version 1")
	}
	names := SamplerNames()
	if len(names) != len(plansOfThisVersion) {
		t.Errorf("there are digests of %d samplers, and %d samplers", len(plansOfThisVersion), len(names))
	}
	for _, name := range names {
		if got := planDigest(t, name); got != plansOfThisVersion[name] {
			t.Errorf("sampler %s draws otherwise than before: digest %q, not %q", name, got, plansOfThisVersion[name])
		}
	}
}

func planDigest(t *testing.T, name string) string {
	const samples = 1000
	sampler, err := NewSampler(SamplerConfig{Name: name, Samples: samples, Seed: 7, BatchSize: 8, World: 4})
	if err != nil {
		t.Fatal(err)
	}
	scores := make([]float32, samples)
	for i := range scores {
		scores[i] = float32(1+i*i%97) / 16 // exact
	}
	hash := sha256.New()
	for epoch := range 2 {
		p := NewPlan(PlanConfig{Sampler: sampler, BatchSize: 8, World: []int32{0, 0, 1, 1}, Ranks: 2}, epoch, scores)
		_ = binary.Write(hash, binary.LittleEndian, p.IDs) // a hash takes everything
		_ = binary.Write(hash, binary.LittleEndian, int64(p.Cut()))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

// TestSnapshotPlanVersion checks that a snapshot keeps the plan version, and that one without it is of version 1.
func TestSnapshotPlanVersion(t *testing.T) {
	s := &Snapshot{Plan: 7, Data: "train", Scores: []float32{1, 2}, Losses: []float32{}, TailIDs: []SampleID{}, TailConsumer: []uint16{}, TailLosses: []float32{}}
	got, err := DecodeSnapshot(s.Encode())
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%+v became %+v, %v", s, got, err)
	}
	s.Plan = 0
	old := s.Encode()
	if strings.Contains(string(old), "Plan") {
		t.Error("a snapshot without a version names one")
	}
	if got, err := DecodeSnapshot(old); err != nil || got.Plan != 1 {
		t.Errorf("a snapshot without a version is of version %d, %v", got.Plan, err)
	}
	if made := NewLedger(nil, nil).Snapshot(nil); made.Plan != PlanVersion {
		t.Errorf("a ledger's snapshot is of plan version %d", made.Plan)
	}
}
