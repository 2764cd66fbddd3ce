package training

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rankpool/mpicache/files"
	"rankpool/scheduler/protocol"
)

// Importance is kept in two places: in the rank's folder, which is in memory and outlives the rank,
// so that a restarted rank plans the same epochs; and in the user's state file, written by rank 0.

// statePrefix begins the names of states in the rank's folder.
const statePrefix = "state-"

// states are the files with the importance states of a training.
type states struct {
	of      *Training
	saving  chan struct{} // closed when the newest state is written, or nil
	keeping chan struct{} // the same for the rank's folder
}

// path is the file in the rank's folder for the state that epoch's plan was made from.
func (s *states) path(epoch int) string {
	return filepath.Join(s.of.rank.Dir, fmt.Sprintf("%s%s-%d", statePrefix, s.of.Key(), epoch))
}

// userPath returns the state file, or "" if there is none.
func (s *states) userPath() string {
	path := s.of.rank.StatePath
	if path != "" && s.of.set.index > 0 {
		path += "." + s.of.data.Name
	}
	if path != "" && s.of.job != "" {
		path += "@" + s.of.job
	}
	return path
}

// ownPath returns the file in the rank's folder for the state of a checkpoint, used if there
// is no state file: a training that is restarted on this cache resumes from it.
func (s *states) ownPath() string {
	return filepath.Join(s.of.rank.Dir, "saved-"+s.of.Key().String())
}

// PreviousState returns the file with the state that was saved before the one in path: a checkpoint
// is written after its state, and until it is there the previous checkpoint counts. No name of a
// training or a data set has a tilde.
func PreviousState(path string) string { return path + "~" }

// keep writes the state that a plan was made from into the rank's folder, without the
// lock. Trainers get the plan once it is there: they must not have a plan that cannot be made
// again.
func (s *states) keep(c protocol.KeepState) {
	s.inFolder(func() {
		if err := files.Replace(s.path(c.Snap.Epoch), c.Snap.Encoded()); err != nil {
			s.of.rank.Log.Warn("the importance state is not kept; a rank that dies now cannot "+
				"plan this epoch again", "error", err)
		}
		e := protocol.StateKept{Epoch: c.Snap.Epoch, Generation: c.Generation}
		s.of.store.Locked(func() { s.of.Coordinate(e) })
	})
}

// inFolder calls f, which changes the rank's folder, without the lock; calls are made one
// after the other.
func (s *states) inFolder(f func()) { s.inTurn(&s.keeping, "change the rank's folder", f) }

// inTurn calls f without the lock, after the previous call with the same last has
// returned. It sets *last to a channel that is closed when f returns.
func (s *states) inTurn(last *chan struct{}, what string, f func()) {
	before, done := *last, make(chan struct{})
	*last = done
	s.of.rank.Beside(last, what, func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	})
}

// forget removes the states of earlier epochs than before from the rank's folder. They could
// be mistaken for those of this training.
func (s *states) forget(before int) {
	for _, path := range s.paths() {
		if epoch, _ := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:]); epoch < before {
			_ = os.Remove(path) // it is removed again for the next epoch
		}
	}
}

// paths returns the states in the rank's folder.
func (s *states) paths() []string {
	entries, _ := os.ReadDir(s.of.rank.Dir) // an error shows when a state is written
	var paths []string
	for _, e := range entries {
		name := e.Name()
		epoch := strings.LastIndexByte(name, '-') + 1
		_, err := strconv.ParseUint(name[epoch:], 10, 32)
		if err == nil && name[:epoch] == fmt.Sprintf("%s%s-", statePrefix, s.of.Key()) &&
			e.Type().IsRegular() {
			paths = append(paths, filepath.Join(s.of.rank.Dir, name))
		}
	}
	return paths
}

// save writes the state file, on rank 0, without the lock, and reports when it is
// written. States are written in order. Without a state file every rank writes the state of a
// checkpoint into its folder.
func (s *states) save(c protocol.SaveState) {
	s.inTurn(&s.saving, "write the state file", func() {
		s.of.rank.GiveWay()
		path := s.write(c)
		if c.ID != 0 {
			e := protocol.StateSaved{ID: c.ID, Path: path, Digest: c.Snap.Digest()}
			s.of.store.Locked(func() { s.of.Coordinate(e) })
		}
	})
}

// write writes a state and returns the path of the state file; "" if there is none or it
// cannot be written.
func (s *states) write(c protocol.SaveState) string {
	path := s.userPath()
	if path != "" && s.of.rank.Transport.Rank() != 0 || path == "" && !c.Snap.Checkpoint {
		return ""
	}
	told := path
	if path == "" {
		path = s.ownPath()
	}
	var err error
	if c.Previous {
		err = setAside(path)
	}
	if err == nil {
		err = files.Replace(path, c.Snap.Encoded())
	}
	if err != nil {
		s.of.rank.Log.Error("the importance state is not saved", "error", err)
		return ""
	}
	return told
}

// setAside keeps a state file under the name of the previous one, too.
func setAside(path string) error {
	old := PreviousState(path)
	next := old + ".new"
	_ = os.Remove(next) // left by a rank that died
	err := os.Link(path, next)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	// a file system without links: until the new file is there, only the old name has the state
	if err != nil {
		return os.Rename(path, old)
	}
	return os.Rename(next, old)
}

// await returns when pending writes are on disk.
func (s *states) await() {
	var keeping, saving chan struct{}
	s.of.store.Locked(func() { keeping, saving = s.keeping, s.saving })
	for _, done := range []chan struct{}{keeping, saving} {
		if done != nil {
			<-done
		}
	}
}

// read reads all states that a training of this stream may resume from, without the
// lock.
func (s *states) read(stream protocol.StreamID) {
	s.inFolder(func() {
		var e protocol.StatesRead
		for _, path := range s.paths() {
			e.Kept = append(e.Kept, readState(path, stream))
		}
		if path := s.userPath(); path != "" {
			e.File, e.Previous = readState(path, stream), readState(PreviousState(path), stream)
		} else {
			path := s.ownPath()
			e.Own = []protocol.StateFile{
				readState(path, stream), readState(PreviousState(path), stream),
			}
		}
		s.of.store.Locked(func() { s.of.Coordinate(e) })
	})
}

// readState returns the state in a file, if it is of this stream.
func readState(path string, stream protocol.StreamID) protocol.StateFile {
	data, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		return protocol.StateFile{}
	}
	var snap *protocol.Snapshot
	if err == nil {
		snap, err = protocol.DecodeSnapshot(data)
	}
	if err == nil {
		if what := stream.Differs(snap.Stream); what != "" {
			err = fmt.Errorf("it is of another training: %s", what)
		}
	}
	if err != nil {
		return protocol.StateFile{Path: path, Err: err}
	}
	return protocol.StateFile{Path: path, Snap: snap}
}
