package stage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A destination is a rank's folder.
type destination struct {
	fsys   FileSystem
	root   string
	run    string // names this run's temporaries
	rank   int
	plan   *Plan
	sync   SyncPolicy
	verify bool
	made   bool      // root did not exist
	told   bool      // this rank wrote a token here
	lock   io.Closer // on the token, while this rank lives; nil if the file system has no locks

	cutBytes int64 // of the pieces of large files
	index    *sidecar
}

func (d *destination) path(item *Item) string { return join(d.root, item.Path) }

// temp returns a temporary name in the folder of rel.
func (d *destination) temp(rel, what string) string {
	return join(join(d.root, parent(rel)), tempPrefix+d.run+"-"+what+tempSuffix)
}

// survey returns which items of owned are missing, and their bytes. It changes nothing.
func (d *destination) survey(owned set, checksum bool) (need set, needBytes int64) {
	d.index = openSidecar(d.fsys, d.root, d.rank)
	need = newSet(len(d.plan.Items))
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		again := item.Kind == HardLink && need.has(int(item.Primary)) // it will be another inode
		if owned.has(i) && (again || !d.isCurrent(item, checksum)) {
			need.add(i)
			if item.Kind == Regular {
				needBytes += item.Size
			}
		}
	}
	return need, needBytes
}

// isCurrent reports whether the destination has the item as the source has it now. For a file this
// means that this program placed it there, and that neither end has changed since; with checksum,
// also that its bytes still have their checksum.
func (d *destination) isCurrent(item *Item, checksum bool) bool {
	info, err := d.fsys.Lstat(d.path(item))
	if err != nil {
		return false
	}
	switch item.Kind {
	case Symlink:
		text, err := d.fsys.Readlink(d.path(item))
		return err == nil && info.Kind == Symlink && text == item.Text
	case HardLink:
		first, err := d.fsys.Lstat(d.path(&d.plan.Items[item.Primary]))
		return err == nil && info.Kind == Regular && first.Inode == info.Inode && first.Dev == info.Dev
	}
	r, found := d.record(item.Path, item.Path)
	if !found || !r.fits(d.plan, item) {
		return false
	}
	if info.Kind != Regular || info.Size != item.Size || info.ModTime != r.placed ||
		info.Mode != item.Mode {
		return false
	}
	if !checksum {
		return true
	}
	file, err := d.fsys.Open(d.path(item))
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }() // it was only read
	sum, err := sumFile(file, info.Size)
	return err == nil && sum == r.sum
}

// record returns the record of the copy at rel, which was placed under the name first.
func (d *destination) record(rel, first string) (record, bool) {
	if r, found := d.index.find(first); found {
		return r, true
	}
	sum, err := d.fsys.Attribute(join(d.root, rel), SumAttribute)
	if err != nil {
		return record{}, false
	}
	source, err := d.fsys.Attribute(join(d.root, rel), SourceAttribute)
	if err != nil {
		return record{}, false
	}
	return parseRecord(string(sum), string(source))
}

// prepare creates all folders, and removes what an interrupted run left in those that existed.
func (d *destination) prepare() (failed []Failure, err error) {
	if err := d.makeRoot(); err != nil {
		return nil, err
	}
	if err := d.writeToken(); err != nil {
		return nil, &DestinationError{d.root, err}
	}
	if err := d.claim(); err != nil {
		return nil, err
	}
	if err := d.clear(d.root); err != nil {
		return nil, &DestinationError{d.root, err}
	}
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		if item.Kind != Folder {
			continue
		}
		switch err := d.folder(item); {
		case isFatal(err):
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

// writeToken writes a token that shows other ranks and runs that this rank writes here.
func (d *destination) writeToken() error {
	token, err := d.fsys.Create(d.token(d.rank))
	if err != nil {
		return err
	}
	d.told = true
	if err := token.Close(); err != nil {
		return err
	}
	if lock, err := d.fsys.Lock(d.token(d.rank)); err == nil {
		d.lock = lock
	}
	return nil
}

// removeToken removes the token: this rank no longer writes here.
func (d *destination) removeToken() {
	_ = d.fsys.Remove(d.token(d.rank)) // if this fails, the next run removes it
	if d.lock != nil {
		_ = d.lock.Close() // nothing was written to it
		d.lock = nil
	}
}

// claimPatience is how long a run waits for one that began at the same moment to give way.
const claimPatience = 2 * time.Second

// claim makes sure that no other run writes here, since each would remove the other's temporaries.
// Of several that begin at the same moment, the one with the lowest name continues: the others see
// its token and give up.
func (d *destination) claim() error {
	for end := time.Now().Add(claimPatience); ; time.Sleep(20 * time.Millisecond) {
		names, err := d.fsys.ReadNames(d.root)
		if err != nil {
			return &DestinationError{d.root, err}
		}
		at := slices.IndexFunc(names, d.isLiving)
		if at < 0 {
			return nil
		}
		if names[at] < tempPrefix+d.run || time.Now().After(end) {
			return fmt.Errorf("stage: another \"rankpool stage\" writes to %s: wait until it has ended, "+
				"or name another folder with --dest", d.root)
		}
	}
}

// isLiving reports whether a name is the token of another run that is still running.
func (d *destination) isLiving(name string) bool {
	if !d.isLeft(name) || !strings.Contains(name, "-rank") {
		return false
	}
	lock, err := d.fsys.Lock(join(d.root, name))
	if err == nil {
		_ = lock.Close() // it was locked only to check that no other process holds it
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// room checks that needBytes bytes fit.
func (d *destination) room(needBytes int64) error {
	if needBytes == 0 {
		return nil
	}
	if free, err := d.fsys.FreeBytes(d.root); err == nil && needBytes > free {
		return fmt.Errorf("stage: %s has room for %d bytes, but %d are to be staged: free some, or "+
			"stage a part of the data set", d.root, free, needBytes)
	}
	return nil
}

// isReady reports whether all folders of the plan exist, and none holds what another run left.
func (d *destination) isReady() bool {
	for i := range d.plan.Items {
		item := &d.plan.Items[i]
		if item.Kind != Folder {
			continue
		}
		info, err := d.fsys.Lstat(d.path(item))
		if err != nil || info.Kind != Folder && item.Path != "" {
			return false
		}
		names, err := d.fsys.ReadNames(d.path(item))
		if err != nil || slices.ContainsFunc(names, d.isLeft) {
			return false
		}
	}
	return true
}

// isLeft reports whether a name is a temporary of another run.
func (d *destination) isLeft(name string) bool {
	return isTemp(name) && !strings.HasPrefix(name, tempPrefix+d.run)
}

// makeRoot creates the destination's own folder and its parents.
func (d *destination) makeRoot() error {
	info, err := d.fsys.Stat(d.root)
	if err == nil {
		if info.Kind != Folder {
			return fmt.Errorf("stage: %s is not a folder: name another one with --dest", d.root)
		}
		return nil
	}
	var missing []string
	for dir := d.root; ; dir = path.Dir(dir) {
		if _, err := d.fsys.Stat(dir); err == nil || dir == path.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	for _, dir := range slices.Backward(missing) {
		if err := makeFolder(d.fsys, dir); err != nil {
			return &DestinationError{d.root, err}
		}
	}
	d.made = true
	return nil
}

// makeFolder creates a folder, unless another rank has created it meanwhile.
func makeFolder(fsys FileSystem, dir string) error {
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// folder creates one folder of the plan, writable by this user until the end.
func (d *destination) folder(item *Item) error {
	dir := d.path(item)
	info, err := d.fsys.Lstat(dir)
	switch {
	case item.Path == "":
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return makeFolder(d.fsys, dir)
	case err != nil:
		return err
	case info.Kind != Folder:
		return fmt.Errorf("something else has its name; remove that")
	case info.Mode&0o700 != 0o700:
		if err := d.fsys.Chmod(dir, info.Mode|0o700); err != nil {
			return err
		}
	}
	return d.clear(dir)
}

// clear removes the temporaries of other runs from a folder.
func (d *destination) clear(dir string) error {
	names, err := d.fsys.ReadNames(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if d.isLeft(name) {
			if err := d.fsys.Remove(join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

func (d *destination) token(rank int) string { return d.temp("", fmt.Sprintf("rank%d", rank)) }

// sharers returns the other ranks that write to this folder. It is called when all ranks have
// prepared, and none has settled.
func (d *destination) sharers(ranks int) (others []int, err error) {
	names, err := d.fsys.ReadNames(d.root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var rank int
		_, err := fmt.Sscanf(name, tempPrefix+d.run+"-rank%d"+tempSuffix, &rank)
		if err == nil && rank != d.rank && rank < ranks {
			others = append(others, rank)
		}
	}
	return others, nil
}

// link places a symbolic link or a hard link, as place does for files.
func (d *destination) link(i int, item *Item) (err error) {
	temp := d.temp(item.Path, fmt.Sprintf("%d-%d", d.rank, i))
	if item.Kind == HardLink {
		err = d.fsys.Link(d.path(&d.plan.Items[item.Primary]), temp)
	} else {
		err = d.fsys.Symlink(item.Text, temp)
	}
	if err != nil {
		return err
	}
	if item.Kind == Symlink {
		err = d.fsys.Chtime(temp, item.ModTime)
	}
	if err == nil || errors.Is(err, unix.ENOTSUP) { // links have no times there
		err = d.fsys.Rename(temp, d.path(item))
	}
	if err != nil {
		_ = d.fsys.Remove(temp) // err is being reported
	}
	return err
}

// settle sets the modes and times of the folders, deepest first, when no rank writes any more.
func (d *destination) settle() (failed []Failure) {
	d.removeToken()
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
	dir := d.path(item)
	info, err := d.fsys.Lstat(dir)
	if err != nil {
		return err
	}
	if info.ModTime != item.ModTime {
		if err := d.fsys.Chtime(dir, item.ModTime); err != nil {
			return err
		}
	}
	if info.Mode != item.Mode {
		return d.fsys.Chmod(dir, item.Mode)
	}
	return nil
}
