package mpicache

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/protocol"
)

// Importance is kept in two places: in the rank's folder, which is in memory and outlives the rank,
// so that a restarted rank plans the same epochs; and in the user's state file, written by rank 0.

// statePrefix begins the names of states in the rank's folder.
const statePrefix = "state-"

// statePath is the file in the rank's folder for the state that epoch's plan was made from.
func (s *stream) statePath(epoch int) string {
	return filepath.Join(s.node.cfg.Dir, fmt.Sprintf("%s%s-%d", statePrefix, s.key(), epoch))
}

// userStatePath returns the state file, or "" if there is none.
func (s *stream) userStatePath() string {
	path := s.node.cfg.StatePath
	if path != "" && s.index > 0 {
		path += "." + s.data.Name
	}
	if path != "" && s.job != "" {
		path += "@" + s.job
	}
	return path
}

// ownStatePath returns the file in the rank's folder for the state of a checkpoint, used if there
// is no state file: a training that is restarted on this cache resumes from it.
func (s *stream) ownStatePath() string {
	return filepath.Join(s.node.cfg.Dir, "saved-"+s.key().String())
}

// previousState returns the file with the state that was saved before the one in path: a checkpoint
// is written after its state, and until it is there the previous checkpoint counts. No name of a
// training or a data set has a tilde.
func previousState(path string) string { return path + "~" }

// keepState writes the state that a plan was made from into the rank's folder, without the stream's
// lock. Trainers get the plan once it is there: they must not have a plan that cannot be made
// again.
func (s *stream) keepState(c protocol.KeepState) {
	s.inFolder(func() {
		if err := writeFile(s.statePath(c.Snap.Epoch), c.Snap.Encoded()); err != nil {
			s.node.cfg.Log.Warn("the importance state is not kept; a rank that dies now cannot "+
				"plan this epoch again", "error", err)
		}
		e := protocol.StateKept{Epoch: c.Snap.Epoch, Generation: c.Generation}
		s.locked(func() { s.coordinate(e) })
	})
}

// inFolder calls f, which changes the rank's folder, without the stream's lock; calls are made one
// after the other.
func (s *stream) inFolder(f func()) { s.inTurn(&s.keeping, "change the rank's folder", f) }

// inTurn calls f without the stream's lock, after the previous call with the same last has
// returned. It sets *last to a channel that is closed when f returns.
func (s *stream) inTurn(last *chan struct{}, what string, f func()) {
	before, done := *last, make(chan struct{})
	*last = done
	s.node.beside(last, what, func() {
		defer close(done)
		if before != nil {
			<-before
		}
		f()
	})
}

// forgetStates removes the states of earlier epochs than before from the rank's folder. They could
// be mistaken for those of this training.
func (s *stream) forgetStates(before int) {
	for _, path := range s.statePaths() {
		if epoch, _ := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:]); epoch < before {
			_ = os.Remove(path) // it is removed again for the next epoch
		}
	}
}

// statePaths returns the states in the rank's folder.
func (s *stream) statePaths() []string {
	entries, _ := os.ReadDir(s.node.cfg.Dir) // an error shows when a state is written
	var paths []string
	for _, e := range entries {
		name := e.Name()
		epoch := strings.LastIndexByte(name, '-') + 1
		_, err := strconv.ParseUint(name[epoch:], 10, 32)
		if err == nil && name[:epoch] == fmt.Sprintf("%s%s-", statePrefix, s.key()) &&
			e.Type().IsRegular() {
			paths = append(paths, filepath.Join(s.node.cfg.Dir, name))
		}
	}
	return paths
}

// ReadFile is os.ReadFile for a file of a rank's folder, or a state file: it returns an error if
// something else is in its place, such as a FIFO, which may never end.
func ReadFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // else a FIFO waits for a writer
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("mpicache: %s is not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}

// saveState writes the state file, on rank 0, without the stream's lock, and reports when it is
// written. States are written in order. Without a state file every rank writes the state of a
// checkpoint into its folder.
func (s *stream) saveState(c protocol.SaveState) {
	s.inTurn(&s.saving, "write the state file", func() {
		s.node.giveWay()
		path := s.writeUserState(c)
		if c.ID != 0 {
			e := protocol.StateSaved{ID: c.ID, Path: path, Digest: c.Snap.Digest()}
			s.locked(func() { s.coordinate(e) })
		}
	})
}

// writeUserState writes a state and returns the path of the state file; "" if there is none or it
// cannot be written.
func (s *stream) writeUserState(c protocol.SaveState) string {
	path := s.userStatePath()
	if path != "" && s.node.cfg.Transport.Rank() != 0 || path == "" && !c.Snap.Checkpoint {
		return ""
	}
	told := path
	if path == "" {
		path = s.ownStatePath()
	}
	if c.Anew && told != "" {
		s.putAside(path, c.Snap.Stream)
	}
	var err error
	if c.Previous {
		err = setAside(path)
	}
	if err == nil {
		err = writeFile(path, c.Snap.Encoded())
	}
	if err != nil {
		s.node.cfg.Log.Error("the importance state is not saved", "error", err)
		return ""
	}
	return told
}

// asideState returns the file for the state of a checkpoint that a training began without.
func asideState(path string, state protocol.Digest) string {
	return previousState(path) + string(state)
}

// putAside renames path and the previous state file, if they hold states of checkpoints. Training
// began without a checkpoint: it was killed before it wrote one, or somebody forgot to pass it.
func (s *stream) putAside(path string, stream protocol.StreamID) {
	for _, name := range []string{path, previousState(path)} {
		f := readState(name, stream)
		if f.Snap == nil || !f.Snap.Checkpoint {
			continue
		}
		aside := asideState(path, f.Snap.Digest())
		if err := os.Rename(name, aside); err != nil {
			s.node.cfg.Log.Warn("the importance state of an earlier checkpoint is not put aside",
				"error", err)
			continue
		}
		s.node.cfg.Log.Warn("the importance state of an earlier checkpoint is put aside: delete it "+
			"unless you resume from that checkpoint", "file", aside)
	}
}

// setAside keeps a state file under the name of the previous one, too.
func setAside(path string) error {
	old := previousState(path)
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

// awaitStates returns when pending writes are on disk.
func (s *stream) awaitStates() {
	var keeping, saving chan struct{}
	s.locked(func() { keeping, saving = s.keeping, s.saving })
	for _, done := range []chan struct{}{keeping, saving} {
		if done != nil {
			<-done
		}
	}
}

// inOne returns data as one piece, for writeFile.
func inOne(data []byte) iter.Seq[[]byte] { return slices.Values([][]byte{data}) }

// flushBytes is how much of a file is written before the kernel is told to send it to the disk.
// Sending everything at the end would occupy processors for milliseconds.
const flushBytes = 1 << 20

// writeFile replaces path atomically by a file that is on disk when it returns, or leaves it
// unchanged.
func writeFile(path string, data iter.Seq[[]byte]) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".state-")
	if err != nil {
		return fmt.Errorf("mpicache: %w", err)
	}
	written, flushed := int64(0), int64(0)
	for piece := range data {
		if _, err = f.Write(piece); err != nil {
			break
		}
		if written += int64(len(piece)); written-flushed >= flushBytes {
			// only a hint, which not all file systems support
			_ = unix.SyncFileRange(int(f.Fd()), flushed, written-flushed, unix.SYNC_FILE_RANGE_WRITE)
			flushed = written
		}
	}
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

// readStates reads all states that a training of this stream may resume from, without the stream's
// lock.
func (s *stream) readStates(stream protocol.StreamID, state protocol.Digest) {
	s.inFolder(func() {
		var e protocol.StatesRead
		for _, path := range s.statePaths() {
			e.Kept = append(e.Kept, readState(path, stream))
		}
		if path := s.userStatePath(); path != "" {
			e.File, e.Previous = readState(path, stream), readState(previousState(path), stream)
			if state.Valid() { // it names a file
				e.Aside = readState(asideState(path, state), stream)
			}
		} else {
			path := s.ownStatePath()
			e.Own = []protocol.StateFile{
				readState(path, stream), readState(previousState(path), stream),
			}
		}
		s.locked(func() { s.coordinate(e) })
	})
}

// readState returns the state in a file, if it is of this stream.
func readState(path string, stream protocol.StreamID) protocol.StateFile {
	data, err := ReadFile(path)
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
