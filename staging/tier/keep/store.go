package keep

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/tier"
)

const (
	// failuresMax is how many failures in a row make a Store abandon the copies: a disk that works has
	// none.
	failuresMax = 8
	// queuedBytes is how many bytes may wait to be written; samples beyond that are not written.
	queuedBytes = 256 << 20
	// lookAgain is the time before a missing group is looked up again, and before a group without room
	// is tried again.
	lookAgain = 10 * time.Second
	// flushEvery is how often tags are written; newer ones are lost in a crash.
	flushEvery = 5 * time.Second
)

var (
	errChanged = errors.New("keep: the bytes read are not the sample's")
	errAbsent  = errors.New("keep: no copy")
)

// Set describes the data set whose samples a Store keeps for a rank.
type Set struct {
	// Identity identifies the data set, with its contents and modification times as far as they are
	// known. Copies are used for data sets with the same identity only.
	Identity    string
	Samples     int // or pieces of samples
	Block       int // of so many neighbouring ones a rank is the owner; 0: 1
	Size        func(draw.SampleID) int64
	Rank, Ranks int
	// Path returns the file that a sample is in. nil: copies are not shared, whatever the Folder does.
	Path func(draw.SampleID) string
	// TagsDir is a folder of the user's, on storage that all nodes share if there is any.
	TagsDir string
	Log     *slog.Logger
}

// A Store keeps copies of the samples of a data set that a rank owns. All methods are safe for
// concurrent use; none but Close waits for the disk.
type Store struct {
	folder  *Folder
	layout  layout
	tags    *tags
	prefix  string // of the names of its groups
	path    func(draw.SampleID) string
	log     *slog.Logger
	work    *tier.Workers
	stop    chan struct{}
	flusher sync.WaitGroup

	creating sync.Mutex // held while a group's file is made

	mu       sync.Mutex
	slots    []slotState // set by mark
	groups   []group
	failures int // in a row
	over     bool
	counts   Counts
}

// Counts are the totals of a Store.
type Counts struct {
	Reads, Writes int64 // samples
	Changed       int64 // samples whose copies had other bytes, or had not been written
	Refused       int64 // samples not written, for lack of room or because the disk was behind
}

// slotState is the state of a sample's copy.
type slotState uint8

const (
	unknown slotState = iota
	whole             // it was written, or was read and matched its tag
	lacking           // it was read, and did not match its tag
)

// group is the state of a group's file.
type group struct {
	missing time.Time // when it was found missing; zero: it is there, or may be
	full    time.Time // when there was no room for it; zero: there may be
	touched time.Time

	whole   int  // samples whose state is whole
	private bool // others may not read all of its sources, or a published file had other bytes
}

// Open opens the copies of a data set. The caller must Close them. It returns an error if the tags
// cannot be read or written.
func (f *Folder) Open(set Set) (*Store, error) {
	text := fmt.Sprintf("rankpool keep 1\x00%s\x00%d\x00%d", set.Identity, set.Rank, set.Ranks)
	key := sha256.Sum256([]byte(text))
	called := hex.EncodeToString(key[:16])
	l := newLayout(set.Samples, max(set.Block, 1), set.Rank, set.Ranks, set.Size)
	tags, err := openTags(set.TagsDir, called, l.slots(), l.groups())
	if err != nil {
		return nil, fmt.Errorf("keep: %w", err)
	}
	s := &Store{
		folder: f, layout: l, tags: tags, prefix: called + ".", path: set.Path, log: set.Log,
		stop:  make(chan struct{}),
		slots: make([]slotState, l.slots()), groups: make([]group, l.groups()),
	}
	full := func(_ int, bytes int64) bool { return bytes >= queuedBytes }
	s.work = tier.NewWorkers(full, func(d time.Duration, f func()) func() bool {
		return time.AfterFunc(d, f).Stop
	})
	s.flusher.Go(s.flushNowAndThen)
	return s, nil
}

// Read reads a sample into into, which must have its size and belongs to the Store until done is
// called. done is called once, on another goroutine. After an error into is unchanged. Read returns
// false, and does nothing, if it knows that there is no copy.
func (s *Store) Read(id draw.SampleID, into []byte, done func(error)) bool {
	slot, own := s.layout.slot(id)
	if !own || s.tags.get(slot) == (tag{}) {
		return false
	}
	s.mu.Lock()
	g := &s.groups[s.layout.group(slot)]
	none := s.over || s.slots[slot] == lacking || s.lately(g.missing)
	s.mu.Unlock()
	return !none && s.work.Add(&tier.Request{
		Memory: into, Do: func(buffer []byte) error { return s.read(slot, buffer) },
		Done: func(err error) {
			s.judge(err) // first, so that whoever asks again sees the effect
			done(err)
		},
	})
}

// Write queues a sample's bytes, as storage returned them, to be written. The caller may reuse
// bytes when Write returns. If the disk is behind or full, Write does nothing.
func (s *Store) Write(id draw.SampleID, bytes []byte) {
	slot, own := s.layout.slot(id)
	if !own {
		return
	}
	s.mu.Lock()
	full := s.lately(s.groups[s.layout.group(slot)].full)
	idle := s.over || s.slots[slot] == whole || full
	if full {
		s.counts.Refused++
	}
	s.mu.Unlock()
	if idle {
		return
	}
	if !s.work.Add(&tier.Request{
		Write: true, Memory: slices.Clone(bytes), Done: s.judge,
		Do: func(buffer []byte) error { return s.write(slot, buffer) },
	}) {
		s.mu.Lock()
		s.counts.Refused++
		s.mu.Unlock()
	}
}

// lately reports whether at is less than lookAgain ago.
func (s *Store) lately(at time.Time) bool { return s.folder.now().Sub(at) < lookAgain }

// Close writes queued samples, for at most patience, and the tags. Later calls are refused.
func (s *Store) Close(patience time.Duration) Counts {
	s.work.Close(patience)
	s.mu.Lock()
	if s.over {
		defer s.mu.Unlock()
		return s.counts
	}
	s.over = true
	s.mu.Unlock()
	close(s.stop)
	s.flusher.Wait()
	if err := errors.Join(s.tags.flush(), s.tags.file.Close()); err != nil {
		s.log.Warn("the next job will not know these kept copies", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// flushNowAndThen writes the tags until the Store is closed, for at most a twentieth of the time.
func (s *Store) flushNowAndThen() {
	wait := flushEvery
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(wait):
		}
		began := time.Now()
		if err := s.tags.flush(); err != nil {
			s.log.Debug("tags of kept copies are not written", "error", err)
		}
		wait = max(flushEvery, 20*time.Since(began))
	}
}

// name returns the name of a group's file.
func (s *Store) name(g int) string { return fmt.Sprintf("%s%d", s.prefix, g) }

// open opens a group's file.
func (s *Store) open(g, flags int) (*os.File, error) {
	file, err := s.folder.open(s.name(g), flags, s.layout.bytes[g])
	switch {
	case err == nil:
		s.touch(g, file)
	case errors.Is(err, unix.ENOENT), errors.Is(err, errNoGroup):
		err = errAbsent
	}
	return file, err
}

// openNamed opens a group's published file, this user's or another user's, and reports whether it
// is this user's.
func (s *Store) openNamed(g int) (file *os.File, own bool, err error) {
	called, known := s.tags.name(g)
	s.mu.Lock()
	private := s.groups[g].private
	s.mu.Unlock()
	if !known || private {
		return nil, false, errAbsent
	}
	file, err = s.folder.open(called.String(), os.O_RDONLY, s.layout.bytes[g])
	own = err == nil
	if err != nil && s.folder.others != nil {
		file, err = s.folder.others.open(called.String(), s.layout.bytes[g])
	}
	if err != nil {
		return nil, false, errAbsent
	}
	s.touch(g, file)
	return file, own, nil
}

// touch notes that a group has a file, and marks the file as in use.
func (s *Store) touch(g int, file *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[g].missing = time.Time{}
	if now := s.folder.now(); now.Sub(s.groups[g].touched) > touchEvery {
		s.groups[g].touched = now
		_ = unix.Futimes(int(file.Fd()), nil) // if this fails, the group looks old and is evicted first
	}
}

// refuse stops using published files of a group: one had other bytes. It is written again.
func (s *Store) refuse(g int, own bool) {
	if called, known := s.tags.name(g); known && own {
		_ = unix.Unlinkat(s.folder.fd, called.String(), 0) // if this fails, the next job refuses it too
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups[g].private = true
	s.forgetSlots(g)
	s.counts.Changed++
}

// mark records the state of a sample's copy. s.mu is held.
func (s *Store) mark(slot int, to slotState) {
	g := &s.groups[s.layout.group(slot)]
	if s.slots[slot] == whole {
		g.whole--
	}
	if to == whole {
		g.whole++
	}
	s.slots[slot] = to
}

// forgetSlots resets the state of a group's samples. s.mu is held.
func (s *Store) forgetSlots(g int) {
	clear(s.slots[s.layout.first[g]:s.layout.first[g+1]])
	s.groups[g].whole = 0
}

// complete reports whether a group is to be published. s.mu is held.
func (s *Store) complete(g int) bool {
	return s.folder.others != nil && !s.groups[g].private &&
		s.groups[g].whole == s.layout.first[g+1]-s.layout.first[g]
}

// read reads a sample and verifies it.
func (s *Store) read(slot int, buffer []byte) error {
	g, named, own := s.layout.group(slot), false, false
	file, err := s.open(g, os.O_RDONLY)
	if errors.Is(err, errAbsent) {
		named = true
		file, own, err = s.openNamed(g)
	}
	if errors.Is(err, errAbsent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.groups[g].missing = s.folder.now()
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.ReadAt(buffer, int64(s.layout.offset[slot])); err != nil {
		return err
	}
	forget(file, int64(s.layout.offset[slot]), int64(len(buffer)))
	same := tagOf(buffer) == s.tags.get(slot)
	if named && !same {
		s.refuse(g, own)
		return errChanged
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !same {
		s.mark(slot, lacking)
		s.counts.Changed++
		return errChanged
	}
	s.counts.Reads++
	if s.slots[slot] != whole {
		s.mark(slot, whole)
		if !named && s.complete(g) {
			// if the queue is full now, another job does it
			s.work.Add(&tier.Request{
				Write: true, Done: s.judge, Do: func([]byte) error { return s.publish(g) },
			})
		}
	}
	return nil
}

// write writes a sample.
func (s *Store) write(slot int, buffer []byte) error {
	g := s.layout.group(slot)
	file, err := s.openOrCreate(g)
	if errors.Is(err, errNoRoom) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.Refused++
		s.groups[g].full = s.folder.now()
		return nil
	}
	if err != nil {
		return err
	}
	if file == nil { // it is published
		s.tags.set(slot, tagOf(buffer))
		return nil
	}
	defer file.Close()
	if _, err := file.WriteAt(buffer, int64(s.layout.offset[slot])); err != nil {
		return err
	}
	forget(file, int64(s.layout.offset[slot]), int64(len(buffer)))
	s.tags.set(slot, tagOf(buffer))
	s.mu.Lock()
	s.mark(slot, whole)
	s.counts.Writes++
	complete := s.complete(g)
	s.mu.Unlock()
	if complete {
		return s.publish(g)
	}
	return nil
}

// openOrCreate opens a group's file for writing. It returns nil if there is a published one.
func (s *Store) openOrCreate(g int) (*os.File, error) {
	file, err := s.open(g, os.O_WRONLY)
	if !errors.Is(err, errAbsent) {
		return file, err
	}
	if named, _, err := s.openNamed(g); err == nil {
		return nil, named.Close()
	}
	return s.create(g)
}

// forget writes bytes of a file to the disk, and drops them from memory: the slab holds them.
func forget(file *os.File, at, length int64) {
	_ = unix.Fadvise(int(file.Fd()), at, length, unix.FADV_DONTNEED) // advice
}

// create creates and opens a group's file. It removes an existing file that is not a group.
func (s *Store) create(g int) (*os.File, error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	file, err := s.open(g, os.O_WRONLY)
	if !errors.Is(err, errAbsent) {
		return file, err // another writer has made it
	}
	s.mu.Lock()
	s.forgetSlots(g) // before another writer finds the file
	s.mu.Unlock()
	s.folder.clear(s.name(g), s.layout.bytes[g])
	if err := s.folder.create(s.name(g), s.layout.bytes[g]); err != nil {
		return nil, err
	}
	return s.open(g, os.O_WRONLY)
}

// judge counts failures of the disk in a row, and abandons the copies when there are too many.
func (s *Store) judge(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.failures = 0
	case errors.Is(err, errAbsent) || errors.Is(err, errChanged):
	default:
		if s.failures++; s.failures == failuresMax && !s.over {
			s.work.Close(0)
			s.log.Warn("the kept copies fail repeatedly; training continues without them",
				"error", err)
		}
	}
}
