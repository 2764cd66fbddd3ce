package mpicache

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rankpool/scheduler"
)

// Importance is kept in three places: in the rank's folder, which lives in memory and outlives the rank, so that a rank
// that is started again plans the same epochs; by the trainers, which hold the files of that folder open and put them back
// when it was cleared; and in the state file of the user, written by rank 0.

// statePath is the file in the rank's folder for the state that epoch's plan was made from.
func (s *stream) statePath(epoch int) string {
	return filepath.Join(s.node.cfg.Dir, fmt.Sprintf("state-%d-%d", s.index, epoch))
}

// userStatePath is the state file, or "" if there is none.
func (s *stream) userStatePath() string {
	path := s.node.cfg.StatePath
	if path != "" && s.index > 0 {
		path += "." + s.data.Name
	}
	return path
}

// ownStatePath is the file in the rank's folder for the state that belongs to a checkpoint, where there is no state file: of
// the trainings on this cache, one that is started again goes on from it.
func (s *stream) ownStatePath() string {
	return filepath.Join(s.node.cfg.Dir, fmt.Sprintf("saved-%d", s.index))
}

// previousState is the file that holds the state that was saved before the one in the state file: a checkpoint is written
// after its state, and until it is there the one before it counts.
func previousState(path string) string { return path + ".previous" }

// streamID returns the identity of the stream that importance is kept for.
func (s *stream) streamID() scheduler.StreamID {
	spec := s.agreed.spec
	return scheduler.StreamID{
		Data: s.data.Name, Identity: s.data.Identity, Samples: s.data.Samples, Sampler: spec.Sampler, Scorer: s.scorerName(), Seed: spec.Seed,
		Options: s.node.cfg.Options.String(), Batch: spec.BatchSize * spec.World, DropLast: spec.DropLast, SamplerDropLast: spec.SamplerDropLast, Plan: scheduler.PlanVersion,
	}
}

// keepState writes the state that a plan was made from into the rank's folder, beside the stream, and then lets trainers have
// the plan: they must not know a plan that cannot be made again.
func (s *stream) keepState(snap *scheduler.Snapshot) {
	p := &s.planner
	snap.Stream = s.streamID()
	generation := p.sources.generation
	s.inFolder(func() {
		err := writeState(s.statePath(snap.Epoch), snap.Encode())
		s.locked(func() {
			if err != nil {
				s.node.cfg.Log.Warn("the importance state is not kept; a rank that dies now cannot plan this epoch again", "error", err)
			}
			if generation == p.sources.generation {
				p.kept[snap.Epoch] = true
				s.answerPlans()
			}
		})
		oldest := snap.Epoch
		s.locked(func() { oldest = min(oldest, slices.Min(append(p.opened, oldest))) })
		s.forgetStates(func(epoch int) bool { return epoch < oldest })
	})
}

// inFolder does f, which changes what is in the rank's folder, beside the stream, one after the other.
func (s *stream) inFolder(f func()) {
	before, done := s.keeping, make(chan struct{})
	s.keeping = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	}()
}

// forgetStates removes the states of some epochs from the rank's folder. They would be taken for those of this training.
func (s *stream) forgetStates(which func(epoch int) bool) {
	for _, path := range s.statePaths() {
		if epoch, err := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:]); err != nil || which(epoch) {
			_ = os.Remove(path) // a trainer may have put it back
		}
	}
}

// statePaths returns the states in the rank's folder.
func (s *stream) statePaths() []string {
	paths, err := filepath.Glob(filepath.Join(s.node.cfg.Dir, fmt.Sprintf("state-%d-*", s.index)))
	if err != nil {
		panic("mpicache: " + err.Error()) // the pattern is well-formed
	}
	return paths
}

// writeState writes a file of the rank's folder, which somebody may have removed.
func writeState(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	return writeFile(path, data)
}

// saveState writes the state file, on rank 0, without holding up the stream, and then calls saved with its path, or with
// "" when there is none or it cannot be written. Later states are written after earlier ones. The state that training saved
// before is kept beside it. Without a state file every rank writes the state of a checkpoint into its folder.
func (s *stream) saveState(snap *scheduler.Snapshot, keepPrevious bool, saved func(path string)) {
	path, write := s.userStatePath(), writeFile
	if path != "" && s.node.cfg.Transport.Rank() != 0 || path == "" && !snap.Checkpoint {
		saved("")
		return
	}
	told := path
	if path == "" {
		path, write = s.ownStatePath(), writeState
	}
	before, done := s.saving, make(chan struct{})
	s.saving = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		var err error
		if keepPrevious {
			err = setAside(path)
		}
		if err == nil {
			err = write(path, snap.Encode())
		}
		if err != nil {
			s.node.cfg.Log.Error("the importance state is not saved", "error", err)
			saved("")
			return
		}
		saved(told)
	}()
}

// setAside keeps a state file under the name of the previous one too.
func setAside(path string) error {
	old := previousState(path)
	next := old + ".new"
	_ = os.Remove(next) // of a rank that died
	err := os.Link(path, next)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil { // a file system without links: until the new file is there, only the old name has the state
		return os.Rename(path, old)
	}
	return os.Rename(next, old)
}

// awaitStates returns when what is being written is on disk.
func (s *stream) awaitStates() {
	var keeping, saving chan struct{}
	s.locked(func() { keeping, saving = s.keeping, s.saving })
	for _, done := range []chan struct{}{keeping, saving} {
		if done != nil {
			<-done
		}
	}
}

// saveLast writes the state file as training leaves it, unless it belongs to a checkpoint.
func (s *stream) saveLast() {
	p := &s.planner
	if p.ledger != nil && len(p.opened) > 0 && !p.checkpointed {
		newest := p.opened[len(p.opened)-1]
		snap := p.ledger.Snapshot(p.base, p.ledger.Final(newest))
		snap.Stream = s.streamID()
		s.saveState(snap, false, func(string) {})
	}
}

// writeFile replaces path by a whole file, which is on disk when it returns, or leaves it as it is.
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
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync() // some file systems cannot
		dir.Close()
	}
	return nil
}

// readKept returns the states in the rank's folder that are of this stream.
func (s *stream) readKept() []keptState {
	var kept []keptState
	for _, path := range s.statePaths() {
		k := s.readSnapshot(path)
		if k.err != nil {
			s.node.cfg.Log.Warn("an importance state is not used", "path", path, "error", k.err)
			continue
		}
		kept = append(kept, k)
	}
	return kept
}

// readSnapshot returns the state in a file, if it is of this stream.
func (s *stream) readSnapshot(path string) keptState {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return keptState{err: errNoState}
	}
	var snap *scheduler.Snapshot
	if err == nil {
		snap, err = scheduler.DecodeSnapshot(data)
	}
	if err != nil {
		return keptState{err: err}
	}
	if what := s.streamID().Differs(snap.Stream); what != "" {
		return keptState{err: fmt.Errorf("it is of another training: %s", what)}
	}
	return keptState{snap: snap}
}
