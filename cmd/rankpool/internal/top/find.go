package top

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// find returns the folder to show: the given one, else $RANKPOOL_SESSION, else this user's only
// session in which a rank serves; inside a Slurm job that of the job.
func find(named string, bases []string) (string, error) {
	if dir := cmp.Or(named, os.Getenv("RANKPOOL_SESSION")); dir != "" {
		return dir, nil
	}
	job := slurm.Detect(os.Getenv)
	live := liveOf(bases, job.JobID)
	switch {
	case len(live) == 1:
		return live[0], nil
	case len(live) > 1:
		text := "several caches run here; choose one with --session:"
		for _, dir := range live {
			path, _ := firstDoor(dir) // there is one
			data, _ := control.Serves(path)
			text += fmt.Sprintf("\n  %s (%s)", dir, strings.Join(data, ", "))
		}
		return "", exit.Usagef("%s", text)
	case job.InJob():
		return "", fmt.Errorf("no rank of job %s serves on this machine; call top on the job's first "+
			"node: srun --overlap --jobid=%s --nodes=1 --ntasks=1 --pty rankpool top", job.JobID, job.JobID)
	}
	return "", errors.New("no cache of yours runs on this machine; call top on the first node of " +
		"its Slurm job: srun --overlap --jobid=ID --nodes=1 --ntasks=1 --pty rankpool top")
}

// liveOf returns this user's sessions in which a rank serves: those of a Slurm job, or if there are
// none those without a job; of all jobs if job is "".
func liveOf(bases []string, job string) []string {
	var all []string
	byJob := map[string][]string{}
	for _, base := range bases {
		dirs, _ := filepath.Glob(filepath.Join(base, "rankpool-*")) // the pattern is well formed
		for _, dir := range dirs {
			if session.Check(dir) == nil &&
				slices.ContainsFunc(session.RankFolders(dir), control.Answers) {
				id := session.JobOf(dir)
				all, byJob[id] = append(all, dir), append(byJob[id], dir)
			}
		}
	}
	switch {
	case job == "":
		return all
	case len(byJob[job]) > 0:
		return byJob[job]
	}
	return byJob[""]
}

// firstDoor returns the door of the lowest rank that has a folder in a session.
func firstDoor(dir string) (string, error) {
	folders := session.RankFolders(dir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("the run has ended, or " + session.WasCleared(dir))
	}
	if len(folders) == 0 {
		return "", fmt.Errorf("%s is not the folder of a running cache: no rank serves there", dir)
	}
	return filepath.Join(folders[0], session.DoorName), nil
}
