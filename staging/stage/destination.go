package stage

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/staging/posix"
)

// A destination is a rank's folder.
type destination struct {
	*tree
	temp    string // folder of this rank's temporaries, relative
	plan    *Plan
	id      string // of the folder, the same for all ranks that have it; "" if unknown
	journal *journal
}

// tempSuffix ends the names of the folders of temporaries.
const tempSuffix = ".tmp"

// idLink is the name of a link in a destination whose text identifies it: that of the first rank
// that staged there.
const idLink = statePrefix + "folder"

func newDestination(root string, rank int, plan *Plan, fault func(op, path string) error,
) *destination {
	d := &destination{
		tree: &tree{root: root, fault: fault}, plan: plan,
		temp: statePrefix + strconv.Itoa(rank) + tempSuffix,
	}
	d.journal = readJournal(d.tree, rank)
	return d
}

// temporary returns the name of an item's file until it is whole.
func (d *destination) temporary(i int) string { return fmt.Sprintf("%s/%d", d.temp, i) }

// survey returns which items of owned are missing, and their bytes. It changes nothing.
func (d *destination) survey(owned set, checksum bool) (need set, needBytes int64) {
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
	if !found || r != recordOf(d.plan, item, r.Sum, i) || i.Mode != item.Mode {
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
	sum, err := f.sum(i.Size)
	return err == nil && sum == r.Sum
}

// close closes the destination's folders, and removes this rank's temporaries.
func (d *destination) close() {
	_ = os.RemoveAll(d.path(d.temp)) // if this fails, the next run does it
	d.tree.close()
}

// prepare creates all folders, and removes the temporaries of a run that was killed.
func (d *destination) prepare() error {
	if err := d.makeRoot(); err != nil {
		return err
	}
	_ = d.symlink(rand.Text(), idLink) // there may be one already
	d.id, _ = d.readlink(idLink)
	names, err := d.names("")
	if err != nil {
		return d.cannotWrite(err)
	}
	for _, name := range names {
		if isOurs(name) && strings.HasSuffix(name, tempSuffix) {
			if err := os.RemoveAll(d.path(name)); err != nil {
				return d.cannotWrite(err)
			}
		}
	}
	for i := range d.plan.Items {
		if item := &d.plan.Items[i]; item.Kind == Folder && item.Path != "" {
			if err := d.makeFolder(item); err != nil {
				return d.cannotWrite(err)
			}
		}
	}
	return nil
}

// makeRoot creates the destination's own folder and its parents. A folder that exists keeps its
// mode, so that this user can write to it again.
func (d *destination) makeRoot() error {
	_, missing := d.look("", true, false)
	err := d.ask("mkdir", "")
	if err == nil {
		err = os.MkdirAll(d.root, 0o700)
	}
	if err == nil && missing != nil && len(d.plan.Items) > 0 {
		err = d.chmod("", d.plan.Items[0].Mode|0o700)
	}
	if errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("stage: %s is not a folder: name another one with --dest", d.root)
	}
	return d.cannotWrite(err)
}

// room checks that needBytes bytes fit.
func (d *destination) room(needBytes int64) error {
	var st unix.Statfs_t
	err := unix.Statfs(d.root, &st)
	if free := int64(st.Bavail) * st.Bsize; err == nil && needBytes > free {
		return fmt.Errorf("stage: %s has room for %d bytes, but %d are to be staged: free some, or "+
			"stage a part of the data set", d.root, free, needBytes)
	}
	return nil
}

// makeFolder creates one folder of the plan, writable by this user until the end.
func (d *destination) makeFolder(item *Item) error {
	if err := d.mkdir(item.Path); err != nil {
		return err
	}
	i, err := d.look(item.Path, false, false)
	if err == nil && i.Kind != Folder {
		err = fmt.Errorf("something else is at %s; remove that", d.path(item.Path))
	}
	if err == nil && i.Mode&0o700 != 0o700 {
		err = d.chmod(item.Path, i.Mode|0o700)
	}
	return err
}

// link places a symbolic link, as place does for files.
func (d *destination) link(i int, item *Item) error {
	temp := d.temporary(i)
	if err := d.symlink(item.Text, temp); err != nil {
		return err
	}
	err := d.chtime(temp, item.ModTime)
	if err == nil || errors.Is(err, unix.ENOTSUP) { // links have no times there
		err = d.rename(temp, item.Path)
	}
	return err
}

// settle sets the modes and times of the folders, deepest first, when no rank writes any more, and
// flushes what was copied.
func (d *destination) settle(copied bool) error {
	for i := len(d.plan.Items) - 1; i >= 0; i-- {
		item := &d.plan.Items[i]
		if item.Kind != Folder || item.Path == "" {
			continue
		}
		at, err := d.look(item.Path, false, false)
		if err == nil && at.ModTime != item.ModTime {
			err = d.chtime(item.Path, item.ModTime)
		}
		if err == nil && at.Mode != item.Mode {
			err = d.chmod(item.Path, item.Mode)
		}
		if err != nil {
			return d.cannotWrite(err)
		}
	}
	err := d.journal.close()
	if err == nil && copied {
		err = d.in("syncfs", "", func(dir int, _ string) error { return unix.Syncfs(dir) })
	}
	return d.cannotWrite(err)
}

// cannotWrite returns the error that ends staging on all ranks, nil if there is none.
func (d *destination) cannotWrite(err error) error {
	if err == nil {
		return nil
	}
	return posix.CannotWrite("stage", d.root, err)
}
