package keep

import (
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// claim reserves room for a file. It counts the files once for each 64th of the quota.
func (f *Folder) claim(size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claimed < size {
		files, err := f.files()
		if err != nil {
			return err
		}
		want := max(size, f.quota/64)
		left := f.evict(files, want)
		if left < size {
			return errNoRoom
		}
		f.claimed = min(left, want)
	}
	f.claimed -= size
	return nil
}

// evict removes the least recently used files, until there is room for want bytes or all that are
// left are in use. It returns the room.
func (f *Folder) evict(files []file, want int64) (left int64) {
	left = f.quota
	for _, one := range files {
		left -= one.size
	}
	slices.SortFunc(files, func(a, b file) int { return a.used.Compare(b.used) })
	for _, one := range files {
		if left >= want || f.now().Sub(one.used) < usedFor {
			break
		}
		if unix.Unlinkat(f.fd, one.name, 0) == nil {
			left += one.size
		}
	}
	return left
}

// groupName matches the names of groups, and of those that are being made. Nothing else in the part
// is ours: the folder may be the user's scratch folder, too.
var groupName = regexp.MustCompile(`^[0-9a-f]{32}\.[0-9]+(\.[0-9]+)?$|^[0-9a-f]{64}$`)

// A file is a file of the user's part.
type file struct {
	name string
	size int64
	used time.Time // last
}

// files lists the part's groups.
func (f *Folder) files() ([]file, error) {
	names, err := list(f.fd)
	if err != nil {
		return nil, err
	}
	var found []file
	for _, name := range names {
		var st unix.Stat_t
		if !groupName.MatchString(name) ||
			unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			continue // not a group, or removed meanwhile
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			found = append(found, file{name, st.Size, time.Unix(st.Mtim.Unix())})
		}
	}
	return found, nil
}
