package keep

import (
	"crypto/sha256"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"rankpool/scheduler/draw"
	"rankpool/staging/tier/access"
)

// publish gives a group's file, once all its samples are whole, the name under which other users
// look for it, if they may read all of its sources. It first reads and verifies the file once more.
func (s *Store) publish(g int) error {
	called, err := s.nameOf(g)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, errNoGroup) || errors.Is(err, errChanged) {
		return nil // another job has done it, or has evicted it; or it is not whole
	}
	if err != nil {
		return err
	}
	who, err := s.access(g)
	if err != nil {
		s.mu.Lock()
		s.groups[g].private = true
		s.mu.Unlock()
		return nil
	}
	folder := s.folder.fd
	err = unix.Linkat(folder, s.name(g), folder, called.String(), 0)
	if err != nil && !errors.Is(err, unix.EEXIST) { // another job of this user's may have done it
		return withoutName(err)
	}
	s.tags.setName(g, called)
	if err := unix.Unlinkat(folder, s.name(g), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	// The mode changes only now: under its old name, which others can guess, nobody else may read it.
	fd, err := openRegular(folder, called.String(), os.O_RDONLY, s.layout.bytes[g])
	if err != nil {
		return withoutName(err)
	}
	if err = unix.Fchown(fd, -1, who.Group); err == nil {
		err = unix.Fchmod(fd, who.Mode)
	} else if errors.Is(err, unix.EPERM) {
		err = nil // a user outside the group does not share it
	}
	return errors.Join(err, unix.Close(fd))
}

// withoutName keeps a name out of messages: the system's errors contain it, their numbers do not.
func withoutName(err error) error {
	if number, ok := errors.AsType[unix.Errno](err); ok {
		return number
	}
	return errNoGroup
}

// nameOf returns the name of a group whose samples are all whole.
func (s *Store) nameOf(g int) (name, error) {
	file, err := s.folder.open(s.name(g), os.O_RDONLY, s.layout.bytes[g])
	if err != nil {
		return name{}, err
	}
	defer file.Close()
	h := sha256.New()
	h.Write([]byte(nameDomain))
	var buffer []byte
	for slot := s.layout.first[g]; slot < s.layout.first[g+1]; slot++ {
		buffer = append(buffer[:0], make([]byte, s.layout.size(slot))...)
		if _, err := file.ReadAt(buffer, int64(s.layout.offset[slot])); err != nil {
			return name{}, err
		}
		if tagOf(buffer) != s.tags.get(slot) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mark(slot, lacking)
			return name{}, errChanged
		}
		h.Write(buffer)
	}
	forget(file, 0, 0)
	return name(h.Sum(nil)), nil
}

// access returns who may read everything that a group was made of.
func (s *Store) access(g int) (access.Access, error) {
	if s.path == nil {
		return access.Access{}, access.ErrNotShared
	}
	var paths []string
	for slot := s.layout.first[g]; slot < s.layout.first[g+1]; slot++ {
		if path := s.path(s.layout.id(slot)); len(paths) == 0 || paths[len(paths)-1] != path {
			paths = append(paths, path) // the samples of a shard have one
		}
	}
	return new(access.Checker).Of(paths)
}

// id returns the sample of a slot.
func (l *layout) id(slot int) draw.SampleID {
	id := draw.SampleID(slot * l.ranks)
	for draw.Owner(id, l.ranks) != l.rank {
		id++
	}
	return id
}
