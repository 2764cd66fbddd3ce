package keep

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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

// A name is the file name of a group that others may read: the SHA-256 of a fixed text and the
// group's bytes. A user who knows it has read them, or got it from somebody who has. A zero name is
// unknown.
type name [sha256.Size]byte

// nameDomain is that text.
const nameDomain = "rankpool group 1\x00"

func (n name) String() string { return hex.EncodeToString(n[:]) }

// tags is the file that holds the tags of the samples that a rank owns, and the names of their
// groups, after a header. All jobs of a user write to it; if one overwrites another's tag, that
// costs a read from storage. A wrong tag matches no bytes.
type tags struct {
	file  *os.File
	mu    sync.Mutex
	text  []byte // of the file
	names int    // where the names begin
	dirty bool   // it changed since it was written
}

// tagsHead is the header: as long for any number of samples.
const (
	tagsHead  = "rankpool tags 1 %-47d\n"
	headBytes = 64
)

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
	if err := checkTags(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	head := fmt.Sprintf(tagsHead, slots)
	t := &tags{file: file, names: headBytes + len(tag{})*slots}
	t.text = make([]byte, t.names+len(name{})*groups)
	n, _ := file.ReadAt(t.text, 0) // what the file lacks is unknown
	if n < len(head) || string(t.text[:len(head)]) != head {
		clear(t.text) // a file of another kind is replaced
		copy(t.text, head)
	}
	return t, nil
}

func checkTags(file *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s must be your own file, readable by nobody else (mode 0600)",
			file.Name())
	}
	return nil
}

// name returns the name of a group, or false if it is not known.
func (t *tags) name(g int) (name, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := name(t.text[t.names+len(name{})*g:])
	return n, n != name{}
}

func (t *tags) setName(g int, to name) { t.write(t.names+len(to)*g, to[:]) }

func (t *tags) get(slot int) tag {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tag(t.text[t.at(slot):])
}

func (t *tags) set(slot int, to tag) { t.write(t.at(slot), to[:]) }

// at is where a slot's tag is.
func (t *tags) at(slot int) int { return headBytes + len(tag{})*slot }

func (t *tags) write(at int, bytes []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dirty = t.dirty || string(t.text[at:at+len(bytes)]) != string(bytes)
	copy(t.text[at:], bytes)
}

// flush writes the file if it has changed.
func (t *tags) flush() error {
	t.mu.Lock()
	if !t.dirty {
		t.mu.Unlock()
		return nil
	}
	text := slices.Clone(t.text)
	t.dirty = false
	t.mu.Unlock()
	_, err := t.file.WriteAt(text, 0)
	if err != nil {
		t.mu.Lock()
		t.dirty = true
		t.mu.Unlock()
	}
	return err
}
