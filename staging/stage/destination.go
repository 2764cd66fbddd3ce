package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A destination is a rank's folder.
type destination struct {
	*tree
	run     string // names this run's temporaries
	rank    int
	plan    *Plan
	made    bool   // rankpool made the folder, which does not have its mode yet
	id      string // of the folder, the same for all ranks that have it; "" if unknown
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
	if !found || r != recordOf(d.plan, item, r.Sum, i) || i.mode != item.Mode {
		return false
	}
	if !checksum {
		return true
	}
	f, err := d.openFile("check", item.Path, unix.O_RDONLY|unix.O_NOFOLLOW)
	if err != nil {
		return false
	}
	defer f.Close() // it was only read
	sum, err := f.sum(i.size)
	return err == nil && sum == r.Sum
}

// prepare creates all folders, and removes what an interrupted run left in those that existed.
func (d *destination) prepare() (failed []Failure, err error) {
	if err := d.makeRoot(); err != nil {
		return nil, err
	}
	d.identify()
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		if item.Kind != Folder {
			continue
		}
		switch err := d.makeFolder(item); {
		case posix.IsFatal(err), err != nil && item.Path == "":
			return nil, cannotWrite(d.root, err)
		case err != nil:
			failed = append(failed, Failure{
				item.Path, d.rank,
				"cannot be created at the destination: " + posix.Reason(err),
			})
		}
	}
	return failed, nil
}

// unfinished is the mode of a destination that rankpool makes, until it gets the source's.
const unfinished = unix.S_ISVTX | 0o700

// makeRoot creates the destination's own folder and its parents.
func (d *destination) makeRoot() error {
	at, err := d.look("", true, false)
	switch {
	case err == nil && at.kind != Folder, errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("stage: %s is not a folder: name another one with --dest", d.root)
	case err == nil && at.mode&0o700 != 0o700 && len(d.plan.Items) > 0 &&
		at.mode == d.plan.Items[0].Mode:
		// an earlier run gave it the mode of its read-only source, as this one will
		d.made = true
		if err := d.chmod("", unfinished); err != nil {
			return cannotWrite(d.root, err)
		}
		return nil
	case err == nil:
		d.made = at.mode == unfinished // by another rank, or a run that was killed
		return nil
	}
	if err = d.ask("mkdir", ""); err == nil {
		err = os.MkdirAll(path.Dir(d.root), 0o700)
	}
	if err == nil {
		err = pathError("mkdir", d.root, unix.Mkdir(d.root, unfinished))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) { // another rank was faster
		return cannotWrite(d.root, err)
	}
	d.made = true
	return nil
}

// idLink is the name of a link in a destination whose text identifies it: that of the first rank
// that staged there.
const idLink = statePrefix + "folder"

// identify finds out which ranks have the same folder.
func (d *destination) identify() {
	_ = d.symlink(fmt.Sprintf("%s-%d", d.run, d.rank), idLink) // there may be one already
	d.id, _ = d.readlink(idLink)
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
				"did not get its mode and time: " + posix.Reason(err),
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

// cannotWrite returns the error that ends staging on all ranks.
func cannotWrite(dest string, err error) error { return posix.CannotWrite("stage", dest, err) }
