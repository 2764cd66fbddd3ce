package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"rankpool/scheduler/plan"
)

var originStream = StreamID{
	Data: "train", Identity: "5a", Samples: 4, Sampler: "pads", Seed: 1,
	Batch: 2, Plan: plan.Version,
}

// stateOf returns a state of an epoch, with scores that depend on n.
func stateOf(epoch, final, n int) *Snapshot {
	s := &Snapshot{
		Stream: originStream, Epoch: epoch, Final: final,
		Scores: []float32{float32(n), 1, 2, 3},
	}
	if final > 0 {
		s.Losses = []float32{1, 1, 1, 1}
	}
	return s
}

func checkpointState(epoch, final, n int) *Snapshot {
	s := stateOf(epoch, final, n)
	s.Checkpoint = true
	return s
}

func sourceOf(s *Snapshot) Digest { return sourceDigest(originStream, s) }

func equalState() *Snapshot {
	return &Snapshot{Stream: originStream, Scores: []float32{9, 9, 9, 9}}
}

func had(states ...*Snapshot) *Training {
	t := &Training{}
	for _, s := range states {
		t.Planned = append(t.Planned, PlanSource{s.Epoch, sourceOf(s)})
	}
	return t
}

func from(epoch, batch int, s *Snapshot) *Training {
	c := &Checkpoint{Epoch: epoch, Batch: batch}
	if s != nil {
		c.State = s.Digest()
	}
	return &Training{Checkpoint: c}
}

func file(s *Snapshot) StateFile { return StateFile{Snap: s} }

var (
	noFile  = StateFile{}
	damaged = StateFile{Err: errors.New("not a whole importance state: the checksum differs")}
	foreign = StateFile{Err: errors.New(
		"it is of another training: its seed is 2, and that of this training 1")}
	begins = &Training{}
)

// TestOrigin checks where the scores of a first plan come from. want is the state, nil for equal
// scores; refused, if not empty, is what the error must contain.
func TestOrigin(t *testing.T) {
	s0 := equalState()
	s2, s3, s4 := stateOf(2, 0, 2), stateOf(3, 0, 3), stateOf(4, 0, 4)
	other3 := stateOf(3, 0, 33)
	saved := checkpointState(3, 1, 5)
	for _, c := range []struct {
		what      string
		epoch     int
		batch     int
		trainings []*Training
		kept      []*Snapshot
		path      bool
		file      StateFile
		previous  StateFile
		want      *Snapshot
		refused   string
		warned    string
	}{
		{what: "begins", trainings: []*Training{begins, begins}},
		{
			what: "begins, and an earlier training has left states", trainings: []*Training{begins},
			kept: []*Snapshot{s0, s2},
		},
		{
			what: "begins, with a state file to be", trainings: []*Training{begins}, path: true,
			file: noFile,
		},
		{
			what: "begins late, by itself", epoch: 3, trainings: []*Training{begins},
			warned: "training begins with equal scores at epoch 3",
		},
		{
			what: "begins late, no file", epoch: 3, trainings: []*Training{begins}, path: true,
			file: noFile, refused: "/s does not exist",
		},
		{
			what: "begins late, its file", epoch: 3, trainings: []*Training{begins}, path: true,
			file: file(s3), want: s3,
		},
		{
			what: "begins late, a file of before", epoch: 3, trainings: []*Training{begins},
			path: true, file: file(stateOf(2, 2, 2)),
			refused: "/s is of epoch 2 after 2 batches, and training begins at epoch 3",
		},
		{
			what: "begins, damaged", trainings: []*Training{begins}, path: true, file: damaged,
			refused: "/s cannot be used: not a whole",
		},
		{
			what: "begins, foreign", trainings: []*Training{begins}, path: true, file: foreign,
			refused: "/s cannot be used: it is of another training: its seed",
		},
		{
			what: "begins, a checkpoint's file", trainings: []*Training{begins}, path: true,
			file: file(saved), warned: "but training has no checkpoint, so it starts over",
		},
		{
			what: "starts over, before its first checkpoint", trainings: []*Training{begins},
			path: true, file: file(s3), warned: "it starts over",
		},

		{
			what: "resumes", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved), from(3, 1, saved)}, path: true,
			file: file(saved), want: saved,
		},
		{
			what: "resumes, one trainer has still to load", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved), begins}, path: true, file: file(saved),
			want: saved,
		},
		{
			what: "resumes from the one before", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved)}, path: true,
			file: file(checkpointState(4, 0, 6)), previous: file(saved), want: saved,
		},
		{
			what: "resumes, the state of another training", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved)}, path: true,
			file: file(checkpointState(3, 1, 6)), previous: noFile,
			refused: "belongs to another importance state than /s holds",
		},
		{
			what: "resumes, damaged", epoch: 3, batch: 1, trainings: []*Training{from(3, 1, saved)},
			path: true, file: damaged, previous: noFile,
			refused: "cannot be used: /s: not a whole",
		},
		{
			what: "resumes, damaged, and the one before is another's", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved)}, path: true, file: damaged,
			previous: file(s3), refused: "cannot be used: /s: not a whole",
		},
		{
			what: "resumes, foreign", epoch: 3, batch: 1, trainings: []*Training{from(3, 1, saved)},
			path: true, file: foreign, previous: noFile,
			refused: "of another training: its seed is 2",
		},
		{
			what: "resumes, missing", epoch: 3, batch: 1, trainings: []*Training{from(3, 1, saved)},
			path: true, file: noFile, previous: noFile, refused: "/s does not exist",
		},
		{
			what: "resumes without a file", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved)}, file: noFile,
			refused: "this run has no --state FILE",
		},
		{
			what: "resumes what the cache did not save", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, nil)}, path: true, file: file(saved),
			refused: "names no importance state, since the cache was away when it was made; " +
				"resume from the checkpoint of epoch 3 after 1 batches, whose state /s holds; or begin",
		},
		{
			what: "resumes what the cache did not save, nor another", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, nil)}, path: true, file: file(s3),
			refused: "resume from an earlier checkpoint; or begin",
		},
		{
			what: "resumes elsewhere", epoch: 7, trainings: []*Training{from(3, 1, saved)},
			path:    true,
			file:    file(saved),
			refused: "training goes to epoch 7, and its checkpoint is of epoch 3",
		},
		{
			what: "resumes from two checkpoints", epoch: 3, batch: 1,
			trainings: []*Training{from(3, 1, saved), from(3, 0, s3)}, path: true,
			file: file(saved), refused: "trainer 0 resumes from epoch 3, batch 1, state ",
		},

		{
			what: "continues, in mid-epoch", epoch: 3,
			trainings: []*Training{had(s2, s3), had(s2, s3)},
			kept:      []*Snapshot{s2, s3, s4}, want: s3,
		},
		{
			what: "continues, at a boundary", epoch: 4, trainings: []*Training{had(s2, s3)},
			kept: []*Snapshot{s3, s2}, want: s3,
		},
		{
			what: "continues, at a boundary, planned ahead", epoch: 4,
			trainings: []*Training{had(s2, s3)}, kept: []*Snapshot{s4, s3}, want: s4,
		},
		{
			what: "continues, one trainer is ahead", epoch: 3,
			trainings: []*Training{had(s3, s4), had(s2, s3)}, kept: []*Snapshot{s4}, want: s4,
		},
		{
			what: "continues, one trainer had no plan yet", epoch: 3,
			trainings: []*Training{had(s3), begins}, kept: []*Snapshot{s3}, want: s3,
		},
		{
			what: "continues, all is lost", epoch: 3, trainings: []*Training{had(s2, s3)},
			refused: "the importance scores of epoch 3 of data set train are lost",
		},
		{
			what: "continues, only older ones are there", epoch: 4,
			trainings: []*Training{had(s2, s3)},
			kept:      []*Snapshot{s2}, refused: "are lost",
		},
		{
			what: "continues, what is there is another's", epoch: 3,
			trainings: []*Training{had(s2, s3)},
			kept:      []*Snapshot{other3}, refused: "are lost",
		},
		{
			// its tail has reports of trainers before these
			what: "does not continue by the state file", epoch: 3,
			trainings: []*Training{had(s2, s3)},
			path:      true, file: file(s3), refused: "are lost",
		},
		{
			what: "continues, a damaged file does not matter", epoch: 3,
			trainings: []*Training{had(s3)},
			kept:      []*Snapshot{s3}, path: true, file: damaged, want: s3,
		},
		{what: "continues in epoch 0", trainings: []*Training{had(s0)}, want: s0},
		{what: "resumes from epoch 0 to 1", epoch: 1, trainings: []*Training{had(s0)}, want: s0},
		{
			what:      "continues in epoch 0, which began with other scores",
			trainings: []*Training{had(stateOf(0, 0, 7))}, refused: "are lost",
		},
		{
			what: "continues, trainers had different plans", epoch: 3,
			trainings: []*Training{had(s3), had(other3)}, kept: []*Snapshot{s3},
			refused: "trainers 0 and 1 have plans of epoch 3 from different importance scores",
		},
	} {
		n := need{
			stream: originStream, epoch: c.epoch, batch: c.batch, trainings: c.trainings,
			equal:      equalState,
			StatesRead: StatesRead{File: c.file, Previous: c.previous},
		}
		for _, s := range c.kept {
			n.Kept = append(n.Kept, file(s))
		}
		if c.path {
			n.path = "/s"
		}
		got, err := n.decide()
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %v, want %q", c.what, err, c.refused)
		case c.refused == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.refused == "" && fmt.Sprint(got.snap) != fmt.Sprint(c.want):
			t.Errorf("%s: from %+v, want %+v", c.what, got.snap, c.want)
		case !strings.Contains(got.warning, c.warned) || c.warned == "" && got.warning != "":
			t.Errorf("%s: it warns of %q, want %q", c.what, got.warning, c.warned)
		}
		if n.begun() || c.refused == "" {
			continue
		}
		// The user may allow what a training that begins or resumes is refused for.
		n.optional = true
		if got, err = n.decide(); err == nil && got.warning == "" ||
			err != nil && !strings.Contains(c.refused, "trainer 0") {
			t.Errorf("%s, optional: %+v, %v", c.what, got, err)
		}
	}
}

// TestSources checks what ranks make of each other's digests.
func TestSources(t *testing.T) {
	s := newSources(0, 3)
	tell := func(rank int, generation uint32, epoch int, digest Digest, want string) {
		t.Helper()
		if err := s.take(Sourced{rank, generation, epoch, digest}); (err != nil) != (want != "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d, epoch %d: %v, want %q", rank, epoch, err, want)
		}
	}
	agreed := func(epoch int, want bool) {
		t.Helper()
		if s.agreed(epoch) != want {
			t.Errorf("epoch %d is agreed: %v", epoch, !want)
		}
	}
	agreed(0, false)
	tell(0, 0, 0, "aa", "")
	tell(1, 0, 0, "aa", "")
	agreed(0, false)
	tell(2, 0, 1, "bb", "") // it was restarted, ahead of the others
	agreed(0, true)
	agreed(1, false)
	tell(
		1, 0, 1, "cc",
		"ranks 1 and 2 have planned epoch 1 from different importance scores (cc, bb)")
	tell(1, 1, 0, "dd", "") // a generation ahead
	tell(2, 1, 0, "dd", "")
	if err := s.next(); err != nil {
		t.Error(err)
	}
	tell(0, 0, 0, "aa", "") // late
	agreed(0, false)
	tell(0, 1, 0, "dd", "")
	agreed(0, true)
	if own, kept := s.own(0); own != "dd" || !kept {
		t.Errorf("this rank's digest is %q", own)
	}
	for epoch := range 10 {
		tell(0, 1, epoch, "dd", "")
	}
	if n := len(s.told[0]); n > keptSources+1 {
		t.Errorf("%d digests are kept", n)
	}
}
