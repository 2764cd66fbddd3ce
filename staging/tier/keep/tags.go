package keep

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// A tag identifies a sample's bytes: the first half of the SHA-256 of a fixed text, which separates
// it from published digests, and the bytes. A user who can write to the copies cannot construct
// other bytes with the same tag: that takes 2^128 tries. A zero tag is unknown.
type tag [16]byte

func tagOf(bytes []byte) tag {
	h := sha256.New()
	h.Write([]byte("rankpool sample 1\x00"))
	h.Write(bytes)
	return tag(h.Sum(nil)[:16])
}

// blockTags is how many tags are written at once: 64 KiB of them, since the file may be on storage
// that all nodes share.
const blockTags = 4096

// A name is the file name of a group that others may read: the SHA-256 of a fixed text and the
// group's bytes. A user who knows it has read them, or got it from somebody who has. A zero name is
// unknown.
type name [sha256.Size]byte

// nameDomain is that text.
const nameDomain = "rankpool group 1\x00"

func (n name) String() string { return hex.EncodeToString(n[:]) }

// tags is the file that holds the tags of the samples that a rank owns, and the names of their
// groups. All jobs of a user write to it; if one overwrites another's tag, that costs a read from
// storage. A wrong tag matches no bytes.
type tags struct {
	header []byte
	mu     sync.Mutex
	known  []tag
	names  []name           // of the groups
	dirty  map[int]struct{} // blocks that changed since they were written
	file   *os.File
}

// namesBlock is the number of the block that holds all names; the others hold tags.
const namesBlock = -1

// openTags opens the file, or creates it, and reads it. It returns an error unless the file is a
// regular file of this user that no other user can read.
func openTags(dir, called string, slots, groups int) (*tags, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, called)
	flags := os.O_RDWR | os.O_CREATE | unix.O_NOFOLLOW | unix.O_NONBLOCK
	file, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	t := &tags{
		header: []byte(fmt.Sprintf("rankpool tags 1 %-47d\n", slots)),
		known:  make([]tag, slots), dirty: map[int]struct{}{}, file: file,
		names: make([]name, groups),
	}
	if err = t.check(path); err == nil {
		err = t.load()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return t, nil
}

func (t *tags) check(path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(t.file.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s must be a file of this user's that nobody else can read (mode 0600)", path)
	}
	return nil
}

// load reads the tags. A file of another kind is replaced.
func (t *tags) load() error {
	all := make([]byte, t.namesAt()+len(name{})*len(t.names))
	n, _ := t.file.ReadAt(all, 0) // what the file lacks is unknown
	if n < len(t.header) || string(all[:len(t.header)]) != string(t.header) {
		if err := t.file.Truncate(0); err != nil {
			return err
		}
		_, err := t.file.WriteAt(t.header, 0)
		return err
	}
	for i := range t.known {
		t.known[i] = tag(all[len(t.header)+len(tag{})*i:])
	}
	for g := range t.names {
		t.names[g] = name(all[t.namesAt()+len(name{})*g:])
	}
	return nil
}

// namesAt is where the names begin in the file.
func (t *tags) namesAt() int { return len(t.header) + len(tag{})*len(t.known) }

// name returns the name of a group, or false if it is not known.
func (t *tags) name(g int) (name, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[g], t.names[g] != name{}
}

func (t *tags) setName(g int, to name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names[g] != to {
		t.names[g] = to
		t.dirty[namesBlock] = struct{}{}
	}
}

func (t *tags) get(slot int) tag {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[slot]
}

func (t *tags) set(slot int, to tag) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known[slot] != to {
		t.known[slot] = to
		t.dirty[slot/blockTags] = struct{}{}
	}
}

// flush writes the changes. What it could not write, the next call writes.
func (t *tags) flush() error {
	t.mu.Lock()
	blocks := slices.Sorted(maps.Keys(t.dirty))
	t.mu.Unlock()
	for _, block := range blocks {
		if err := t.flushBlock(block); err != nil {
			return err
		}
	}
	return nil
}

func (t *tags) flushBlock(block int) error {
	t.mu.Lock()
	delete(t.dirty, block)
	var buffer []byte
	at := t.namesAt()
	if block == namesBlock {
		for _, one := range t.names {
			buffer = append(buffer, one[:]...)
		}
	} else {
		first := block * blockTags
		at = len(t.header) + first*len(tag{})
		for _, one := range t.known[first:min(len(t.known), first+blockTags)] {
			buffer = append(buffer, one[:]...)
		}
	}
	t.mu.Unlock()
	_, err := t.file.WriteAt(buffer, int64(at))
	if err != nil {
		t.mu.Lock()
		t.dirty[block] = struct{}{}
		t.mu.Unlock()
	}
	return err
}
