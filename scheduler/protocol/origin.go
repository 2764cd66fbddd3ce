package protocol

import (
	"fmt"
	"slices"
)

// This file decides where the scores of a rank's first plan come from. A rank starts without
// scores, and serves one of three kinds of training: a new one, one that resumes from a checkpoint,
// or one in progress whose ranks were restarted. The first starts with equal scores. The other two
// continue with the scores that they had, or not at all: a plan from other scores would give
// another stream.
//
// It only decides; it reads no files.

// Training is a training process's description of itself when it opens a data set (OPEN): what it
// resumes from, and which plans it has had. A DataLoader's worker sends none.
type Training struct {
	// Life is a random number of the process, and Turn counts the checkpoints that it has loaded: a
	// slow connection may report an earlier one late.
	Life uint64 `json:"life"`
	Turn uint32 `json:"turn"`
	// Checkpoint is what it resumes from; nil: it is new.
	Checkpoint *Checkpoint `json:"checkpoint"`
	// Planned are the plans of the last two epochs that it has received.
	Planned []PlanSource `json:"planned"`
}

// Checkpoint is the position from which a training resumes, and the digest of the importance that
// was saved for it.
type Checkpoint struct {
	Epoch int    `json:"epoch"`
	Batch int    `json:"batch"`
	State Digest `json:"state"` // "": it is not known
	// Processes is how many processes the training began with; 0: as many as resume.
	Processes int `json:"processes,omitempty"`
}

// PlanSource is an epoch whose plan a trainer has, and the digest of the scores that the plan was
// made from.
type PlanSource struct {
	Epoch  int    `json:"epoch"`
	Scores Digest `json:"scores"`
}

// A need describes the first plan of a rank, and all that is known about the scores that it may be
// made from.
type need struct {
	stream    StreamID
	epoch     int // the requested one
	batch     int // its first
	trainings []*Training
	equal     func() *Snapshot // the state before any report
	path      string           // of the state file; "": there is none
	optional  bool             // begin even if the state file does not match
	StatesRead
}

// StateFile is the content of a file with an importance state, or why it cannot be used; the zero
// StateFile if the file does not exist.
type StateFile struct {
	Path string // for messages
	Snap *Snapshot
	Err  error
}

func (f StateFile) missing() bool { return f.Snap == nil && f.Err == nil }

func (f StateFile) ofCheckpoint() bool { return f.Snap != nil && f.Snap.Checkpoint }

// An origin is the basis of the first plan.
type origin struct {
	// snap is the state to resume from: its own epoch is planned first. With alone, only its scores
	// are used, for the requested epoch. nil: equal scores.
	snap  *Snapshot
	alone bool
	// sameTrainers is true if reports of the snapshot's tail may still arrive.
	sameTrainers bool
	warning      string
}

// begun reports whether a trainer has received a plan before.
func (n *need) begun() bool {
	return slices.ContainsFunc(n.trainings, func(t *Training) bool { return len(t.Planned) > 0 })
}

// checkpoint returns the checkpoint from which the training resumes, nil for a new training. All
// trainers must resume from the same one.
func (n *need) checkpoint() (*Checkpoint, error) {
	var found *Checkpoint
	of := 0
	for t, training := range n.trainings {
		c := training.Checkpoint
		if c == nil { // it may still have to load it
			continue
		}
		if found != nil && *found != *c {
			return nil, differentCheckpoints(of, found, t, c)
		}
		found, of = c, t
	}
	return found, nil
}

func differentCheckpoints(a int, x *Checkpoint, b int, y *Checkpoint) error {
	return fmt.Errorf("trainer %d resumes from %s, and trainer %d from %s: give all trainers the "+
		"same checkpoint", a, x, b, y)
}

func (c *Checkpoint) String() string {
	switch {
	case c == nil:
		return "no checkpoint"
	case c.State == "":
		return fmt.Sprintf("epoch %d, batch %d", c.Epoch, c.Batch)
	}
	return fmt.Sprintf("epoch %d, batch %d, state %.8s", c.Epoch, c.Batch, c.State)
}

// planned returns the digest of the scores that an epoch was planned from, "" if no trainer has its
// plan.
func (n *need) planned(epoch int) (Digest, error) {
	var found Digest
	of := 0
	for t, training := range n.trainings {
		for _, p := range training.Planned {
			if p.Epoch != epoch {
				continue
			}
			if found != "" && found != p.Scores {
				return "", fmt.Errorf("trainers %d and %d have plans of epoch %d from different "+
					"importance scores", of, t, epoch)
			}
			found, of = p.Scores, t
		}
	}
	return found, nil
}

// decide returns the origin of the first plan, or an error that explains why none can be made.
func (n *need) decide() (origin, error) {
	if n.begun() {
		return n.goOn()
	}
	c, err := n.checkpoint()
	switch {
	case err != nil:
		return origin{}, err
	case c != nil:
		return n.resume(c)
	}
	return n.begin()
}

// goOn decides for a training in progress. The scores that its ranks have kept must be those that
// its plans were made from.
func (n *need) goOn() (origin, error) {
	newest := 0
	for _, t := range n.trainings {
		for _, p := range t.Planned {
			newest = max(newest, p.Epoch)
		}
	}
	for _, epoch := range []int{n.epoch, n.epoch - 1, newest} {
		want, err := n.planned(epoch)
		if err != nil {
			return origin{}, err
		}
		for _, k := range n.Kept {
			if k.Snap == nil || k.Snap.Epoch != epoch || epoch < n.epoch-1 ||
				want != "" && want != n.scores(k.Snap) {
				continue
			}
			return origin{snap: k.Snap, sameTrainers: true}, nil
		}
		if want != "" && epoch == 0 && n.epoch <= 1 {
			// the first epoch of a training may have begun with equal scores
			if equal := n.equal(); want == n.scores(equal) {
				return origin{snap: equal, sameTrainers: true}, nil
			}
		}
	}
	return origin{}, fmt.Errorf("the importance scores of epoch %d of data set %s are lost: no rank "+
		"has kept them; resume from a checkpoint", n.epoch, n.stream.Data)
}

func (n *need) scores(s *Snapshot) Digest { return sourceDigest(n.stream, s) }

// resume decides for a training that resumes from a checkpoint, which identifies its state.
func (n *need) resume(c *Checkpoint) (origin, error) {
	for _, k := range slices.Concat(n.Own, []StateFile{n.File, n.Previous}) {
		if k.Snap == nil || c.State == "" || k.Snap.Digest() != c.State {
			continue
		}
		if n.epoch != k.Snap.Epoch && n.epoch != k.Snap.Epoch+1 {
			return n.misfit("training goes to epoch %d, and its checkpoint is of epoch %d", n.epoch,
				k.Snap.Epoch)
		}
		return origin{snap: k.Snap}, nil
	}
	switch {
	case c.State == "":
		return n.misfit("the checkpoint names no importance state, since the cache was away when "+
			"it was made; resume from %s", n.earlier())
	case n.path == "":
		return n.misfit("the checkpoint belongs to an importance state, and this run has no --state FILE")
	case n.File.missing():
		return n.misfit("the checkpoint's importance state %s does not exist", n.path)
	case n.File.Err != nil:
		return n.misfit("the checkpoint's importance state cannot be used: %s: %s", n.path, n.File.Err)
	}
	return n.misfit("the checkpoint (%s) belongs to another importance state than %s holds: that is "+
		"of epoch %d after %d batches, state %.8s",
		c, n.path, n.File.Snap.Epoch, n.File.Snap.Final, n.File.Snap.Digest())
}

// earlier describes a checkpoint that training can resume from.
func (n *need) earlier() string {
	if !n.File.ofCheckpoint() {
		return "an earlier checkpoint"
	}
	return fmt.Sprintf("the checkpoint of epoch %d after %d batches, whose state %s holds",
		n.File.Snap.Epoch, n.File.Snap.Final, n.path)
}

// begin decides for a training without a rankpool checkpoint. It may have its own checkpoints, and
// then continues at a later epoch with the state file.
func (n *need) begin() (origin, error) {
	f := n.File
	switch {
	case n.path == "" && n.epoch == 0, f.missing() && n.epoch == 0:
		return origin{}, nil
	case n.path == "":
		return origin{warning: fmt.Sprintf("no importance state exists; training begins with equal "+
			"scores at epoch %d", n.epoch)}, nil
	case f.missing():
		return n.misfit("training begins at epoch %d, and %s does not exist", n.epoch, n.path)
	case f.Err != nil:
		return n.misfit("%s cannot be used: %s", n.path, f.Err)
	case f.Snap.Epoch == n.epoch && f.Snap.Final >= n.batch:
		return origin{snap: f.Snap}, nil
	case n.epoch == 0 && (!n.optional || !f.Snap.Checkpoint):
		// The training ended before its first checkpoint was written. If there is one after all, its
		// state becomes the previous one.
		return origin{warning: fmt.Sprintf("%s holds the state of epoch %d, but training has no "+
			"checkpoint, so it starts over", n.path, f.Snap.Epoch)}, nil
	}
	return n.misfit("%s is of epoch %d after %d batches, and training begins at epoch %d, batch %d, "+
		"without a checkpoint", n.path, f.Snap.Epoch, f.Snap.Final, n.epoch, n.batch)
}

// misfit decides if the state file is not the one that training needs: training does not begin,
// unless the user allows it. Then it begins with the scores that exist.
func (n *need) misfit(format string, args ...any) (origin, error) {
	why := fmt.Sprintf(format, args...)
	if !n.optional {
		return origin{}, fmt.Errorf("training on data set %s would not continue with the same "+
			"batches: %s; or begin with the scores that there are by --tune state-optional=true",
			n.stream.Data, why)
	}
	if s := n.File.Snap; s != nil {
		return origin{
			snap: s, alone: true,
			warning: why + "; training begins with the scores of its state file",
		}, nil
	}
	return origin{warning: why + "; training begins with equal scores"}, nil
}
