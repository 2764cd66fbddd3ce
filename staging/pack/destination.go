package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/staging/index"
	"rankpool/staging/posix"
)

// cannotWrite returns the error that ends packing.
func cannotWrite(dest string, err error) error { return posix.CannotWrite("pack", dest, err) }

// An output is a file that is being written.
type output interface {
	io.Writer
	Name() string
	Chmod(mode fs.FileMode) error
	Sync() error
	Close() error
}

// createTemp creates a file in the folder of the one with this name, under a name that begins with
// a dot, so that it is not a sample.
func createTemp(dir, name string) (output, error) { return os.CreateTemp(dir, "."+name+".*") }

// isTemp reports whether a name is that of a temporary, from createTemp or for the manifest, that a
// killed run left.
func isTemp(name string) bool {
	shard, _ := path.Match(".pack-*.tar.*", name) // the patterns are valid
	return shard || strings.HasPrefix(name, "."+index.ManifestName+".")
}

// lockName is the file that says which pack a folder holds, and lists the finished shards: the hash
// of a plan, then a line for each shard, its number and the checksum of its samples' checksums. It
// begins with a dot, so that it is not a sample.
const lockName = ".rankpool-pack"

var errOtherPack = errors.New("another pack (of other data, or data that has changed since, or " +
	"in another order or shard size)")

// claim makes the folder dest, and locks it for p until the file is closed. Then it checks that the
// folder holds nothing but p, and removes what a killed run left, and the manifest: from now on the
// pack is incomplete. It returns the checksums of the finished shards.
//
// Errors: another pack, one that is being written, something else in the folder, a
// *posix.DestinationError.
func claim(dest string, p *Plan) (lock *os.File, done map[int]uint64, err error) {
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return nil, nil, cannotWrite(dest, err)
	}
	lock, err = os.OpenFile(filepath.Join(dest, lockName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, nil, cannotWrite(dest, err)
	}
	// Without locks, pack anyway.
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		_ = lock.Close() // nothing was written
		return nil, nil, fmt.Errorf("pack: another rankpool pack writes to %s", dest)
	}
	if done, err = enter(lock, dest, p); err != nil {
		_ = lock.Close() // err is being reported
		return nil, nil, err
	}
	return lock, done, nil
}

// enter compares which pack the folder holds, and returns the checksums of the finished shards; if
// the folder is new, it notes the pack.
func enter(lock *os.File, dest string, p *Plan) (done map[int]uint64, err error) {
	head := fmt.Sprintf("%x\n", p.identity())
	text, err := io.ReadAll(lock)
	if err != nil {
		return nil, cannotWrite(dest, err)
	}
	list, begun := strings.CutPrefix(string(text), head)
	if !begun && len(text) > 0 {
		return nil, fmt.Errorf("pack: %s holds %w: name another folder, or remove that one", dest,
			errOtherPack)
	}
	if err := prepare(dest, begun); err != nil {
		if !begun { // leave nothing in a folder that is not ours
			_ = os.Remove(lock.Name())
		}
		return nil, err
	}
	done = map[int]uint64{}
	for line := range strings.Lines(list) {
		var shard int
		var sum uint64
		if _, err := fmt.Sscanf(line, doneLine, &shard, &sum); err == nil {
			done[shard] = sum
		}
	}
	if !begun {
		if _, err := lock.WriteString(head); err != nil {
			return nil, cannotWrite(dest, err)
		}
	}
	return done, nil
}

// doneLine is a line of the lock file. A line that a killed run did not finish has too few digits.
const doneLine = "%d %016x\n"

// prepare checks that the folder dest holds nothing but a pack, and removes the manifest and what a
// killed run left. begun reports whether there was a pack before.
func prepare(dest string, begun bool) error {
	entries, err := os.ReadDir(dest)
	if err != nil {
		return cannotWrite(dest, err)
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case begun && (isTemp(name) || name == index.ManifestName):
			if err := os.Remove(filepath.Join(dest, name)); err != nil {
				return cannotWrite(dest, err)
			}
		case !begun && !strings.HasPrefix(name, "."):
			return fmt.Errorf("pack: %s holds %q, and is not an unfinished pack: name a new folder", dest,
				name)
		}
	}
	return nil
}
