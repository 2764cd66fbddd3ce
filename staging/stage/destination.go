package stage

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A destination is a rank's folder.
type destination struct {
	*tree
	run     string // names this run's temporaries
	rank    int
	plan    *Plan
	made    bool   // rankpool made the folder, which does not have its mode yet
	id      string // of the folder during this run, the same for all ranks that have it; "" if unknown
	lock    *file  // held while this rank writes here; nil if the file system has no locks
	journal *journal
}

// temp returns a temporary name in the folder of rel.
func (d *destination) temp(rel string, number int) string {
	return strings.TrimPrefix(fmt.Sprintf("%s/%s%s-%d-%d%s", parent(rel), statePrefix, d.run, d.rank,
		number, tempSuffix), "/")
}

// survey returns which items of owned are missing, and their bytes. It changes nothing.
func (d *destination) survey(owned set, checksum bool) (need set, needBytes int64) {
	d.journal = readJournal(d.tree, d.rank)
	need = newSet(len(d.plan.Items))
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		if owned.has(i) && !d.isCurrent(item, checksum) {
			need.add(i)
			needBytes += item.Size
		}
	}
	return need, needBytes
}

// isCurrent reports whether the destination has the item as the source has it now. For a file this
// means that this program placed it there, and that neither end has changed since; with checksum,
// also that its bytes still have their checksum.
func (d *destination) isCurrent(item *Item, checksum bool) bool {
	if item.Kind == Regular && d.journal.records[item.Path] == nil {
		return false
	}
	i, err := d.look(item.Path, false, false)
	if err != nil {
		return false
	}
	if item.Kind == Symlink {
		text, err := d.readlink(item.Path)
		return err == nil && text == item.Text
	}
	r, found := d.journal.find(item.Path, i)
	if !found || r != recordOf(d.plan, item, r.sum, i) || i.mode != item.Mode {
		return false
	}
	if !checksum {
		return true
	}
	f, err := d.openFile("check", item.Path, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer func() { _ = f.close() }() // it was only read
	sum, err := f.sum(i.size)
	return err == nil && sum == r.sum
}

// prepare creates all folders, and removes what an interrupted run left in those that existed.
func (d *destination) prepare() (failed []Failure, err error) {
	if err := d.makeRoot(); err != nil {
		return nil, err
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		if item.Kind != Folder {
			continue
		}
		switch err := d.makeFolder(item); {
		case isFatal(err), err != nil && item.Path == "":
			return nil, &DestinationError{d.root, err}
		case err != nil:
			failed = append(failed, Failure{
				item.Path, d.rank,
				"cannot be created at the destination: " + reasonOf(err),
			})
		}
	}
	return failed, nil
}

// unfinished is the mode of a destination that rankpool makes, until it gets the source's.
const unfinished = fs.ModeSticky | 0o700

// makeRoot creates the destination's own folder and its parents.
func (d *destination) makeRoot() error {
	at, err := os.Stat(d.root)
	switch {
	case err == nil && !at.IsDir(), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("stage: %s is not a folder: name another one with --dest", d.root)
	case err == nil:
		d.made = at.Mode()&^fs.ModeDir == unfinished // by another rank, or a run that was killed
		return nil
	}
	if err = d.ask("mkdir", ""); err == nil {
		err = os.MkdirAll(path.Dir(d.root), 0o700)
	}
	if err == nil {
		err = pathError("mkdir", d.root, unix.Mkdir(d.root, systemMode(unfinished)))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another rank was faster
		return &DestinationError{d.root, err}
	}
	d.made = true
	return nil
}

// lockName is the file in a destination that says who writes there.
const lockName = statePrefix + "lock"

// claimPatience is how long a rank waits for one that claims the destination at the same moment.
const claimPatience = 2 * time.Second

// claim makes sure that no other run writes here, since each would remove the other's temporaries.
// The first rank of a run has the lock for itself, writes the run's name and a name for the folder
// into it, and shares it with the others.
func (d *destination) claim() error {
	lock, err := d.openFile("append", lockName, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW)
	if err != nil {
		return &DestinationError{d.root, err}
	}
	d.lock = lock
	flock := func(how int) error {
		return lock.call("lock", func() error { return unix.Flock(lock.fd, how|unix.LOCK_NB) })
	}
	for end := time.Now().Add(claimPatience); ; time.Sleep(10 * time.Millisecond) {
		err := flock(unix.LOCK_EX)
		if err == nil {
			id := make([]byte, 8)
			_, _ = rand.Read(id) // never fails, as documented
			err = lock.writeAt(fmt.Appendf(nil, "%s %s", d.run, hex.EncodeToString(id)), 0)
			if err != nil {
				return &DestinationError{d.root, err}
			}
			err = flock(unix.LOCK_SH) // another rank may take it for itself in between
		} else if errors.Is(err, unix.EWOULDBLOCK) {
			err = flock(unix.LOCK_SH)
		} else {
			return nil // the file system has no locks
		}
		run, id, _ := strings.Cut(string(d.content(lockName)), " ")
		switch {
		case err == nil && run == d.run:
			d.id = id
			return nil
		case time.Now().After(end):
			return fmt.Errorf("stage: another \"rankpool stage\" writes to %s: wait until it has "+
				"ended, or name another folder with --dest", d.root)
		case err == nil:
			_ = flock(unix.LOCK_UN) // of another run, which may be about to end
		}
	}
}

// leave lets other runs write here.
func (d *destination) leave() {
	if d.lock != nil {
		_ = d.lock.close() // what was written to it is of no use any more
	}
	d.close()
}

// room checks that needBytes bytes fit.
func (d *destination) room(needBytes int64) error {
	if free, err := d.free(); err == nil && needBytes > free {
		return fmt.Errorf("stage: %s has room for %d bytes, but %d are to be staged: free some, or "+
			"stage a part of the data set", d.root, free, needBytes)
	}
	return nil
}

// makeFolder creates one folder of the plan, writable by this user until the end, and removes the
// temporaries of other runs from it.
func (d *destination) makeFolder(item *Item) error {
	if item.Path != "" {
		if err := d.mkdir(item.Path); err != nil {
			return err
		}
		i, err := d.look(item.Path, false, false)
		if err == nil && i.kind != Folder {
			err = errors.New("something else has its name; remove that")
		}
		if err == nil && i.mode&0o700 != 0o700 {
			err = d.chmod(item.Path, i.mode|0o700)
		}
		if err != nil {
			return err
		}
	}
	names, err := d.names(item.Path)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !isTemp(name) || strings.HasPrefix(name, statePrefix+d.run) {
			continue
		}
		err := d.remove(strings.TrimPrefix(item.Path+"/"+name, "/"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// link places a symbolic link, as place does for files.
func (d *destination) link(i int, item *Item) error {
	temp := d.temp(item.Path, i)
	if err := d.symlink(item.Text, temp); err != nil {
		return err
	}
	err := d.chtime(temp, item.ModTime)
	if err == nil || errors.Is(err, unix.ENOTSUP) { // links have no times there
		err = d.rename(temp, item.Path)
	}
	if err != nil {
		_ = d.remove(temp) // err is being reported
	}
	return err
}

// settle sets the modes and times of the folders, deepest first, when no rank writes any more.
func (d *destination) settle() (failed []Failure) {
	for i := len(d.plan.Items) - 1; i >= 0; i-- {
		item := &d.plan.Items[i]
		if item.Kind != Folder || item.Path == "" && !d.made {
			continue
		}
		if err := d.finishFolder(item); err != nil {
			failed = append(failed, Failure{
				item.Path, d.rank,
				"did not get its mode and time: " + reasonOf(err),
			})
		}
	}
	return failed
}

func (d *destination) finishFolder(item *Item) error {
	i, err := d.look(item.Path, false, false)
	if err == nil && i.modTime != item.ModTime {
		err = d.chtime(item.Path, item.ModTime)
	}
	if err == nil && i.mode != item.Mode {
		err = d.chmod(item.Path, item.Mode)
	}
	return err
}
