package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/plan"
)

// plansOfThisVersion has a digest of two epochs' draws and cut for every sampler.
var plansOfThisVersion = map[string]string{
	"chunks":           "d14b124e69b382cd",
	"pads":             "680ae2abc667152a",
	"selective":        "99fa6784bacd4e45",
	"sequential":       "bb228664129c9b08",
	"subset":           "256341d6943c1c78",
	"thrifty":          "e7ebec501eeaec7f",
	"torch":            "f13aaeeffeaa3708",
	"uniform":          "e7ebec501eeaec7f",
	"torch-sequential": "bb228664129c9b08",
	"weighted":         "680ae2abc667152a",
	"weighted-once":    "efaef8adca574873",
}

// TestPlansOfThisVersion checks that the same sampler, seed and scores give the draws that they
// always gave in this version. When it fails, trainings under way cannot continue with the
// change: increment plan.Version, and note the new digests.
func TestPlansOfThisVersion(t *testing.T) {
	if plan.Version != 3 {
		t.Fatal("the digests are of version 3")
	}
	names := draw.SamplerNames()
	if len(names) != len(plansOfThisVersion) {
		t.Errorf("there are digests of %d samplers, and %d samplers", len(plansOfThisVersion),
			len(names))
	}
	for _, name := range names {
		if got := planDigest(t, name); got != plansOfThisVersion[name] {
			t.Errorf("sampler %s draws otherwise than before: digest %q, not %q", name, got,
				plansOfThisVersion[name])
		}
	}
}

func planDigest(t *testing.T, name string) string {
	const samples = 1000
	sampler, err := draw.NewSampler(
		draw.SamplerConfig{Name: name, Samples: samples, Seed: 7, BatchSize: 8, World: 4})
	if err != nil {
		t.Fatal(err)
	}
	scores := make([]float32, samples)
	for i := range scores {
		scores[i] = float32(1+i*i%97) / 16 // exact
	}
	hash := sha256.New()
	for epoch := range 2 {
		p := plan.New(
			plan.Config{Sampler: sampler, BatchSize: 8, World: []int32{0, 0, 1, 1}, Ranks: 2}, epoch,
			scores)
		_ = binary.Write(hash, binary.LittleEndian, p.IDs) // a hash returns no error
		_ = binary.Write(hash, binary.LittleEndian, int64(p.Cut()))
	}
	return hex.EncodeToString(hash.Sum(nil))[:16]
}

func someSnapshot() *Snapshot {
	nan := float32(math.NaN())
	return &Snapshot{
		Stream: StreamID{
			Data: "train", Identity: "5a", Samples: 3, Sampler: "pads", Scorer: "logrank", Seed: 7,
			Batch: 2, DropLast: true, Plan: plan.Version,
		},
		Epoch: 4, Final: 1, Scores: []float32{1, 2, 3}, Losses: []float32{0.5, nan, nan, nan},
		TailEpoch: 3, TailBatch: 1, TailDraws: 4,
		TailIDs: []draw.SampleID{2, 0}, TailConsumer: []uint16{0, 1}, TailLosses: []float32{nan, 4},
	}
}

// TestSnapshotIsWhole checks that a snapshot is read as it was written, and that a flipped byte
// anywhere is detected.
func TestSnapshotIsWhole(t *testing.T) {
	s := someSnapshot()
	text := s.Encode()
	got, err := DecodeSnapshot(text)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(s) || got.Digest() != s.Digest() {
		t.Errorf("%+v became %+v, %v", s, got, err)
	}
	for i := range text {
		flipped := slices.Clone(text)
		flipped[i] ^= 1
		if _, err := DecodeSnapshot(flipped); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("with byte %d flipped: %v", i, err)
		}
		if _, err := DecodeSnapshot(text[:i]); !errors.Is(err, ErrSnapshot) {
			t.Fatalf("the first %d bytes: %v", i, err)
		}
	}
	old := append([]byte("rpstate1"), text[8:]...)
	if _, err := DecodeSnapshot(old); !errors.Is(err, ErrSnapshot) ||
		!strings.Contains(err.Error(), "an older rankpool wrote it") {
		t.Errorf("a file of before: %v", err)
	}
}

// TestSnapshotOfShortEpochs checks that a ledger restored at the beginning of an epoch has the same
// digest as one that was not, if the epoch before has no batches after its cut, and its last one
// may be short.
func TestSnapshotOfShortEpochs(t *testing.T) {
	const batch = 4
	for _, samples := range []int{28, 32, 27, 31, 9, 3} {
		batches := (samples + batch - 1) / batch
		sampler, err := draw.NewSampler(draw.SamplerConfig{
			Name: "weighted-once", Samples: samples, BatchSize: batch, World: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		cfg := plan.Config{Sampler: sampler, BatchSize: batch, World: []int32{0}, Ranks: 1}
		scorer, err := NewScorer("logrank")
		if err != nil {
			t.Fatal(err)
		}
		epoch := func(l *Ledger, epoch, upTo int, scores []float32) {
			p := plan.New(cfg, epoch, scores)
			l.Open(p)
			for b := range upTo {
				lo, hi := p.Range(b)
				losses := make([]float32, hi-lo)
				for i := range losses {
					losses[i] = float32(b+i+epoch) + 1
				}
				if err := l.Report(AllTrainers, epoch, b, losses, nil); err != nil {
					t.Fatal(err)
				}
				l.Fold(nil)
			}
		}
		whole := NewLedger(scorer, EqualScores(samples, 1))
		epoch(whole, 0, batches, whole.Take())
		scores := whole.Take()
		whole.Fold(nil)
		begin := whole.SnapshotNext(scores)
		begin.Stream.Batch = batch
		again := RestoreLedger(scorer, begin, 1, true)
		var digests []Digest
		for _, l := range []*Ledger{whole, again} {
			epoch(l, 1, min(batches, 3), scores)
			digests = append(digests, l.Snapshot(scores, min(batches, 3)).Digest())
		}
		if digests[0] != digests[1] {
			t.Errorf("%d samples: %.8s, and %.8s when the ledger was restored", samples, digests[0],
				digests[1])
		}
	}
}

// TestDigestOfMissingLosses checks that missing losses count as NaN.
func TestDigestOfMissingLosses(t *testing.T) {
	s := Snapshot{Scores: make([]float32, 3*pieceBytes/4), Losses: []float32{1, 2}}
	s.draws = 2 * pieceBytes / 4
	whole := Snapshot{Scores: s.Scores, Losses: append(s.Losses, unreported(s.draws-2)...)}
	if a, b := s.Digest(), whole.Digest(); a != b {
		t.Errorf("%s, and %s with all losses", a, b)
	}
}

// TestSnapshotDigest checks that all that training depends on changes the digest, and nothing else
// does.
func TestSnapshotDigest(t *testing.T) {
	want := someSnapshot().Digest()
	for name, edit := range map[string]func(s *Snapshot){
		"name":      func(s *Snapshot) { s.Stream.Data = "imagenet" },
		"purpose":   func(s *Snapshot) { s.Checkpoint = true },
		"consumers": func(s *Snapshot) { s.TailConsumer = []uint16{3, 3} },
		"NaNs":      func(s *Snapshot) { s.Losses[1] = math.Float32frombits(0xffc00001) },
	} {
		s := someSnapshot()
		edit(s)
		if s.Digest() != want {
			t.Errorf("another %s, another digest", name)
		}
	}
	seen := map[Digest]string{want: "nothing"}
	for name, edit := range map[string]func(s *Snapshot){
		"identity":    func(s *Snapshot) { s.Stream.Identity = "71" },
		"sampler":     func(s *Snapshot) { s.Stream.Sampler = "weighted" },
		"scorer":      func(s *Snapshot) { s.Stream.Scorer = "loss" },
		"seed":        func(s *Snapshot) { s.Stream.Seed = 8 },
		"batch":       func(s *Snapshot) { s.Stream.Batch = 4 },
		"drop_last":   func(s *Snapshot) { s.Stream.DropLast = false },
		"plan":        func(s *Snapshot) { s.Stream.Plan++ },
		"epoch":       func(s *Snapshot) { s.Epoch++ },
		"final":       func(s *Snapshot) { s.Final++ },
		"a score":     func(s *Snapshot) { s.Scores[2] = 4 },
		"a loss":      func(s *Snapshot) { s.Losses[0] = 1 },
		"a tail's id": func(s *Snapshot) { s.TailIDs[1] = 1 },
		"a tail loss": func(s *Snapshot) { s.TailLosses[0] = 1 },
		"no losses":   func(s *Snapshot) { s.Losses = nil },
	} {
		s := someSnapshot()
		edit(s)
		if other, known := seen[s.Digest()]; known {
			t.Errorf("with another %s the digest is that with another %s", name, other)
		}
		seen[s.Digest()] = name
	}
}

// TestStreamIDDiffers checks that a difference is named, except in the data set's name.
func TestStreamIDDiffers(t *testing.T) {
	a, b := someSnapshot().Stream, someSnapshot().Stream
	b.Data = "elsewhere"
	if what := a.Differs(b); what != "" {
		t.Errorf("copies differ: %s", what)
	}
	b.Seed, b.SamplerDropLast = 9, true
	if what, want := a.Differs(b), "its seed is 9, and that of this training 7"; what != want {
		t.Errorf("%q, want %q", what, want)
	}
}

// TestSnapshotPlaces checks that the state at the end of an epoch is the one at the beginning of
// the next, whether that is open or not, and that a state in mid-epoch has no losses of later
// batches.
func TestSnapshotPlaces(t *testing.T) {
	const samples, batch = 64, 8
	sampler, err := draw.NewSampler(
		draw.SamplerConfig{Name: "pads", Samples: samples, Seed: 7, BatchSize: batch, World: 1})
	if err != nil {
		t.Fatal(err)
	}
	plan := func(epoch int, scores []float32) *plan.Plan {
		return plan.New(plan.Config{Sampler: sampler, BatchSize: batch, World: []int32{0}, Ranks: 1},
			epoch, scores)
	}
	scorer, err := NewScorer(DefaultScorer("pads"))
	if err != nil {
		t.Fatal(err)
	}
	base := EqualScores(samples, scorer.Initial(batch))
	l := NewLedger(scorer, slices.Clone(base))
	p := plan(0, base)
	l.Open(p)
	var at5 Digest
	for b := range p.Batches() {
		if b == 5 {
			at5 = l.Snapshot(base, 5).Digest()
		}
		losses := make([]float32, p.PartLen(b, 0))
		for i := range losses {
			losses[i] = float32(b + i)
		}
		if err := l.Report(0, 0, b, losses, nil); err != nil {
			t.Fatal(err)
		}
		l.Fold(nil)
	}
	if got := l.Snapshot(base, 5).Digest(); got != at5 {
		t.Error("reports of later batches changed the state before batch 5")
	}
	next := l.Take()
	l.Fold(nil)
	before := l.SnapshotNext(next)
	l.Open(plan(1, next))
	after := l.Snapshot(next, 0)
	if before.Epoch != 1 || before.Digest() != after.Digest() || len(before.TailIDs) == 0 {
		t.Errorf("before the epoch is open: %+v; after: %+v", before, after)
	}
}

// TestSnapshotHasCuts: the scores at earlier cuts are read back and count for the digest, and a
// snapshot without them is as before.
func TestSnapshotHasCuts(t *testing.T) {
	plain := Snapshot{Epoch: 3, Scores: []float32{1, 2}}
	with := plain
	with.Cuts = []Cut{{0, []float32{3, 4}}, {2, []float32{5, 6}}}
	got, err := DecodeSnapshot(with.Encode())
	if err != nil || len(got.Cuts) != 2 || got.Cuts[1].Epoch != 2 ||
		!slices.Equal(got.Cuts[1].Scores, []float32{5, 6}) {
		t.Errorf("%+v, %v", got, err)
	}
	other := plain
	other.Cuts = []Cut{{0, []float32{3, 4}}, {2, []float32{5, 7}}}
	if with.Digest() == other.Digest() || with.Digest() == plain.Digest() {
		t.Error("the digest leaves the cuts out")
	}
	if bytes := plain.Encode(); strings.Contains(string(bytes), "CutEpochs") {
		t.Error("a snapshot without cuts says something about them")
	}
	long := with.Encode()
	if _, err := DecodeSnapshot(long[:len(long)-8]); err == nil {
		t.Error("a snapshot that is cut off is read")
	}
}
