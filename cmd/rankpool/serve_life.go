package main

import (
	"os"
	"path/filepath"
	"strconv"

	"rankpool/slurm"
)

// lifeName is the file in a rank's folder that says in which life of a requeued job the folder was made.
const lifeName = "life"

// beginLife clears what an earlier life of a requeued job left on this node when it was killed: states of epochs that the other ranks do
// not have, and folders of ranks that are elsewhere now. The rank's own folder is locked.
func (r *rankProcess) beginLife(job slurm.Job) error {
	life := strconv.Itoa(job.RestartCount)
	for _, folder := range rankFolders(r.opt.session) {
		was, err := os.ReadFile(filepath.Join(folder, lifeName))
		if err != nil || string(was) == life {
			continue
		}
		if folder == r.dir {
			err = emptyFolder(folder)
		} else if !locked(filepath.Join(folder, lockName)) {
			err = os.RemoveAll(folder)
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(r.dir, lifeName), []byte(life), 0o600)
}

// emptyFolder removes all that is in a rank's folder but the lock.
func emptyFolder(folder string) error {
	entries, err := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.Name() != lockName && err == nil {
			err = os.RemoveAll(filepath.Join(folder, entry.Name()))
		}
	}
	return err
}

// leaveNothing removes the session from a node where nobody else will: the job ends, and Slurm starts no step in it any more.
func (r *rankProcess) leaveNothing() {
	for _, folder := range rankFolders(r.opt.session) {
		if folder != r.dir && locked(filepath.Join(folder, lockName)) {
			return // the last rank does
		}
	}
	if !launcherHolds(r.opt.session) {
		_ = os.RemoveAll(r.opt.session) // else the next run does
	}
}
