package keep

import (
	"errors"
	"maps"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookForUsers is how often the folder is searched for parts of other users.
const lookForUsers = time.Minute

// others are the parts of other users. Nothing in them is trusted.
type others struct {
	fd int // of the folder that holds all parts

	mu     sync.Mutex
	looked time.Time
	parts  map[int]int // by user: the part, which can be searched but not listed
}

// open opens a group in the part of another user. It returns errAbsent if there is none.
func (o *others) open(called string, size int64) (*os.File, error) {
	for _, part := range o.all() {
		if fd, err := openRegular(part, called, os.O_RDONLY, size); err == nil {
			return os.NewFile(uintptr(fd), "a group"), nil
		}
	}
	return nil, errAbsent
}

// all returns the parts.
func (o *others) all() map[int]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); now.Sub(o.looked) > lookForUsers {
		o.looked = now
		o.look()
	}
	return o.parts
}

// look searches the folder. A part that was found before stays open. o.mu is held.
func (o *others) look() {
	names, _ := list(o.fd) // after an error, the names read so far
	parts := map[int]int{}
	maps.Copy(parts, o.parts)
	for _, called := range names {
		uid, err := strconv.Atoi(called)
		if _, known := parts[uid]; err != nil || known || uid == os.Geteuid() {
			continue
		}
		if part, err := openPart(o.fd, called, uid); err == nil {
			parts[uid] = part
		}
	}
	o.parts = parts
}

// openPart opens another user's part, which must be that user's own.
func openPart(shared int, called string, uid int) (int, error) {
	fd, err := openDirectory(shared, called, unix.O_NOFOLLOW|unix.O_PATH)
	if err != nil {
		return -1, err
	}
	return checked(fd, func(st *unix.Stat_t) error {
		if int(st.Uid) != uid || st.Mode&0o022 != 0 {
			return errors.New("keep: the part is not the user's own")
		}
		return nil
	})
}

func (o *others) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	err := unix.Close(o.fd)
	for _, part := range o.parts {
		err = errors.Join(err, unix.Close(part))
	}
	return err
}
