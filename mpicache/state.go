package mpicache

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rankpool/scheduler"
)

// Importance is kept in two places: in the rank's folder, which lives in memory and outlives the rank, so that a rank
// that is started again plans the same epochs; and in the state file of the user, written by rank 0.

// statePath is the file in the rank's folder for the state that epoch's plan was made from.
func (s *stream) statePath(epoch int) string {
	return filepath.Join(s.node.cfg.Dir, fmt.Sprintf("state-%d-%d", s.index, epoch))
}

// userStatePath is the state file, or "" if there is none here.
func (s *stream) userStatePath() string {
	path := s.node.cfg.StatePath
	if path != "" && s.index > 0 {
		path += "." + s.data.Name
	}
	return path
}

// writeStates keeps the state of the epoch that was just opened. The user's state file stays as it is when the epoch came
// from it: the other ranks may not have read it yet.
func (s *stream) writeStates(restored bool) {
	p := &s.planner
	snap := s.snapshot()
	newest := p.opened[len(p.opened)-1]
	if snap.Final == 0 {
		snap.Losses = nil // there are none
	}
	if err := writeFile(s.statePath(newest), snap.Encode()); err != nil {
		s.node.cfg.Log.Warn("the importance state is not kept; a rank that dies now cannot plan this epoch again", "error", err)
	}
	if old, err := filepath.Glob(filepath.Join(s.node.cfg.Dir, fmt.Sprintf("state-%d-*", s.index))); err == nil {
		for _, path := range old {
			keep := false
			for _, e := range p.opened {
				keep = keep || path == s.statePath(e)
			}
			if !keep {
				_ = os.Remove(path) // it is in nobody's way
			}
		}
	}
	if !p.checkpointed && !restored {
		s.saveState(snap, func(string) {})
	}
}

// saveState writes the state file, on rank 0, without holding up the stream, and then calls saved with its path, or with
// "" when there is none. Later states are written after earlier ones.
func (s *stream) saveState(snap *scheduler.Snapshot, saved func(path string)) {
	path := s.userStatePath()
	if path == "" || s.node.cfg.Transport.Rank() != 0 {
		saved("")
		return
	}
	data, before, done := snap.Encode(), s.saving, make(chan struct{})
	s.saving = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		if err := writeFile(path, data); err != nil {
			s.node.cfg.Log.Error("the importance state is not saved", "error", err)
			saved("")
			return
		}
		saved(path)
	}()
}

// saveLast writes the state file as training leaves it, unless it belongs to a checkpoint.
func (s *stream) saveLast() {
	if s.planner.ledger != nil && len(s.planner.opened) > 0 && !s.planner.checkpointed {
		s.saveState(s.snapshot(), func(string) {})
	}
}

func (s *stream) snapshot() *scheduler.Snapshot {
	snap := s.planner.ledger.Snapshot(s.planner.base)
	snap.Data, snap.Sampler, snap.Seed = s.data.Name, s.agreed.spec.Sampler, s.agreed.spec.Seed
	snap.Options = s.node.cfg.Options.String()
	return snap
}

// writeFile replaces path by a whole file or leaves it as it is.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state-")
	if err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mpicache: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// readState returns what an earlier life of this rank kept for epoch, or for the one before it.
func (s *stream) readState(epoch int) *scheduler.Snapshot {
	for _, e := range []int{epoch, epoch - 1} {
		if snap := s.readSnapshot(s.statePath(e)); snap != nil && snap.Epoch == e {
			return snap
		}
	}
	return nil
}

// readStateFile returns the user's state, if there is one that fits.
func (s *stream) readStateFile() *scheduler.Snapshot {
	if path := s.userStatePath(); path != "" {
		return s.readSnapshot(path)
	}
	return nil
}

func (s *stream) readSnapshot(path string) *scheduler.Snapshot {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var snap *scheduler.Snapshot
	if err == nil {
		snap, err = scheduler.DecodeSnapshot(data)
	}
	spec := s.agreed.spec
	if err == nil && snap.Plan != scheduler.PlanVersion {
		err = fmt.Errorf("it is of plan version %d, and this rankpool makes plans of version %d: training would not go on with the same batches", snap.Plan, scheduler.PlanVersion)
	}
	if err == nil && (snap.Data != s.data.Name || len(snap.Scores) != s.data.Samples || snap.Sampler != spec.Sampler ||
		snap.Seed != spec.Seed || snap.Batch != spec.BatchSize*spec.World) {
		err = fmt.Errorf("it is of data set %s with %d samples, sampler %s, seed %d, global batch %d", snap.Data, len(snap.Scores), snap.Sampler, snap.Seed, snap.Batch)
	}
	if options := s.node.cfg.Options.String(); err == nil && snap.Options != options {
		err = fmt.Errorf("it was made with the options %q (--set), and the ranks have %q", snap.Options, options)
	}
	if err != nil {
		s.node.cfg.Log.Warn("an importance state is not used", "path", path, "error", err)
		return nil
	}
	return snap
}

// waitingSave is a SAVE that waits for the reports it is to hold.
type waitingSave struct {
	conn         *conn
	ticket       uint32
	epoch, batch int
	deadline     time.Time
}

// saveTimeout bounds how long SAVE waits for reports of other trainers, which are within a step of each other.
const saveTimeout = 5 * time.Second

// onSave answers SAVE when the reports of all trainers before the batch are in the state file.
func (s *stream) onSave(c *conn, ticket uint32, f placeFrame) (err error) {
	s.locked(func() {
		if err = s.checkSave(c, f); err == nil {
			err = s.sit(c, true)
		}
		if err != nil {
			return
		}
		p := &s.planner
		w := waitingSave{c, ticket, int(f.epoch), int(f.batch), time.Now().Add(saveTimeout)}
		if s.userStatePath() == "" || s.node.cfg.Transport.Rank() != 0 || p.ledger == nil {
			w.answer("")
			return
		}
		p.checkpointed = true
		p.saves = append(p.saves, w)
		s.answerSaves()
	})
	return err
}

func (s *stream) answerSaves() {
	p := &s.planner
	rest := p.saves[:0]
	for _, w := range p.saves {
		if p.ledger.Opened(w.epoch) && p.ledger.Final(w.epoch) < w.batch && time.Now().Before(w.deadline) {
			rest = append(rest, w)
			continue
		}
		s.saveState(s.snapshot(), w.answer)
	}
	p.saves = rest
}

// answer tells the client where the state is.
func (w waitingSave) answer(path string) {
	text, err := json.Marshal(map[string]string{"saved": path})
	if err != nil {
		panic("mpicache: a path is not JSON: " + err.Error())
	}
	w.conn.write(endFrame(append(appendFrame(nil, KindSave+replyTo, w.ticket), text...), 0))
}
