package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rankpool/staging"
)

// A run's data sets are those that its launcher found when it began, whatever happens to the files, or to a manifest, afterwards. The
// launcher leaves their sample indexes in the session folder, for the ranks of its machine, which do not look for themselves then, and
// tells all ranks their identities. It holds the files open, so that it can put them back when somebody clears the folder.
type runIndexes struct {
	dir        string
	files      []*os.File
	identities []string // NAME=DIGEST
}

// sessionIndex is the file in the session folder that has the sample index of a run's data set i.
func sessionIndex(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("index-%d", i)) }

// keep adds the next data set. Without a folder only its identity is kept.
func (x *runIndexes) keep(name string, m *staging.Manifest) error {
	x.identities = append(x.identities, name+"="+m.Identity().Digest.String())
	if x.dir == "" {
		return nil
	}
	path := sessionIndex(x.dir, len(x.files))
	if err := staging.WriteIndex(path, m); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err == nil {
		x.files = append(x.files, file)
	}
	return err
}

// putBack makes the session folder and the indexes that are no longer there.
func (x *runIndexes) putBack() error {
	for i, file := range x.files {
		path := sessionIndex(x.dir, i)
		if _, err := os.Stat(path); err == nil || !errors.Is(err, os.ErrNotExist) {
			continue // what is wrong with it the ranks will say
		}
		if err := os.MkdirAll(x.dir, 0o700); err != nil {
			return err
		}
		if err := copyFile(path, file); err != nil {
			return err
		}
	}
	return nil
}

// copyFile writes what file holds to path, whole or not at all.
func copyFile(path string, file *os.File) error {
	to, err := os.CreateTemp(filepath.Dir(path), ".index-")
	if err != nil {
		return err
	}
	_, err = file.Seek(0, io.SeekStart)
	if err == nil {
		_, err = io.Copy(to, file)
	}
	err = errors.Join(err, to.Chmod(0o644), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}

func (x *runIndexes) close() {
	for _, file := range x.files {
		_ = file.Close() // it was read
	}
}

// refusedName is the file in the session folder in which rank 0 says why no rank can serve this run any more.
const refusedName = "refused"

// refuse leaves word for the launcher that starting the ranks again would not help.
func (r *rankProcess) refuse(why error) {
	if r.transport.Rank() == 0 {
		_ = os.WriteFile(filepath.Join(r.opt.session, refusedName), []byte(why.Error()), 0o600) // without it they are started again
	}
}

// refusal returns what rank 0 has said by refuse, "" for nothing.
func refusal(sessionDir string) string {
	why, _ := os.ReadFile(filepath.Join(sessionDir, refusedName))
	return string(why)
}

// checkRun returns an error unless the data sets are those that the run began with, as its launcher said.
func (r *rankProcess) checkRun() error {
	for _, set := range r.sets {
		digest := set.manifest.Identity().Digest.String()
		for _, said := range r.opt.identities {
			if name, want, _ := strings.Cut(said, "="); name == set.name && want != digest {
				return fmt.Errorf("data set %s in %s is not the one that this run began with: its identity is %s, and was %s; start the training anew",
					name, set.path, digest, want)
			}
		}
	}
	return nil
}

// openIndex returns a data set's index, and the file that has it: the run's own, or what an earlier rank of this launch left in the rank's
// folder; else the data set is looked at, and its index written there.
func (r *rankProcess) openIndex(i int, open func() (*staging.Manifest, error)) (m *staging.Manifest, path string, err error) {
	own := filepath.Join(r.dir, fmt.Sprintf("index-%d", i))
	if r.opt.launch != "" {
		for _, path := range []string{sessionIndex(r.opt.session, i), own} {
			if m, err = staging.OpenIndex(path); err == nil {
				err = m.CheckIdentity()
			}
			if err == nil {
				return m, path, nil
			}
			if !errors.Is(err, os.ErrNotExist) {
				r.logger.Warn("an index of this run is not used", "error", err)
			}
		}
	}
	if m, err = open(); err != nil {
		return nil, "", err
	}
	if err := staging.WriteIndex(own, m); err != nil {
		return nil, "", err
	}
	m, err = staging.OpenIndex(own) // one copy in memory serves this rank and its clients
	return m, own, err
}
