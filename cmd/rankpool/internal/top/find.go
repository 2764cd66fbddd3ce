package top

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/control"
	"rankpool/cmd/rankpool/internal/session"
	"rankpool/slurm"
)

// A place is where top looks for running caches.
type place struct {
	getenv func(string) string
	bases  []string // folders of session folders
	uid    int
}

// here is this machine, for this user.
func here() place {
	var bases []string
	for _, base := range []string{"/dev/shm", os.Getenv("TMPDIR"), "/tmp"} {
		if base != "" && !slices.Contains(bases, filepath.Clean(base)) {
			bases = append(bases, filepath.Clean(base))
		}
	}
	return place{os.Getenv, bases, os.Getuid()}
}

// session returns the folder to show: the given one, else $RANKPOOL_SESSION, else that of the Slurm
// job on this node, else this user's only session in which a rank serves; inside a job, not that of
// another job.
func (p place) session(named string) (string, error) {
	if dir := cmp.Or(named, p.getenv("RANKPOOL_SESSION")); dir != "" {
		return dir, nil
	}
	job := slurm.Detect(p.getenv)
	if job.InJob() {
		if dir, err := p.jobSession(job.JobID); dir != "" || err != nil {
			return dir, err
		}
	}
	notOfOthers := func(of string) bool { return of == "" || !job.InJob() }
	if dir, err := only(p.live(notOfOthers)); dir != "" || err != nil {
		return dir, err
	}
	if job.InJob() {
		return "", fmt.Errorf("no rank of job %s serves on this machine; \"rankpool top --job "+
			"%s\" asks the job's first node", job.JobID, job.JobID)
	}
	return "", errors.New("no cache of yours runs on this machine; name a Slurm job with --job ID, " +
		"for another folder --session DIR")
}

// jobSession returns the session of a Slurm job here, or "" if no rank serves. It is an error if
// the job has several.
func (p place) jobSession(id string) (string, error) {
	return only(p.live(func(job string) bool { return job == id }))
}

// only returns the only one of some sessions, "" if there is none. Several are an error.
func only(live []string) (string, error) {
	switch len(live) {
	case 0:
		return "", nil
	case 1:
		return live[0], nil
	}
	return "", exit.Usagef("several caches run here; choose one with --session:\n  %s",
		strings.Join(live, "\n  "))
}

// live returns the sessions of this user in which a rank serves and whose job is wanted; the job is
// "" outside Slurm.
func (p place) live(wanted func(job string) bool) []string {
	var found []string
	for _, base := range p.bases {
		// the pattern is well formed
		dirs, _ := filepath.Glob(filepath.Join(base, fmt.Sprintf("rankpool-%d-*", p.uid)))
		for _, dir := range dirs {
			if info, err := os.Stat(dir); err == nil && session.OwnedBy(info, p.uid) &&
				wanted(session.JobOf(dir)) && doorAnswers(dir) {
				found = append(found, dir)
			}
		}
	}
	return found
}

// doorAnswers reports whether a rank serves in a session.
func doorAnswers(dir string) bool {
	path, err := firstDoor(dir)
	if err != nil {
		return false
	}
	c, err := control.Dial(path)
	if err != nil {
		return false
	}
	_ = c.Close() // an answer is enough
	return true
}

// firstDoor returns the door of the lowest rank that has a folder in a session.
func firstDoor(dir string) (string, error) {
	least := -1
	for _, folder := range session.RankFolders(dir) {
		if r, err := strconv.Atoi(filepath.Base(folder)[1:]); err == nil && (least < 0 || r < least) {
			least = r
		}
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("the run has ended, or " + session.WasCleared(dir))
	}
	if least < 0 {
		return "", fmt.Errorf("%s is not the folder of a running cache: no rank serves there", dir)
	}
	return filepath.Join(session.RankFolder(dir, least), session.DoorName), nil
}

// A job is a Slurm job that top reaches through a step.
type job struct {
	id   string // may be of a job array, as in 77_3
	args []string
	live bool // on a terminal
}

// exec replaces this process with srun, which runs top on the job's first node, where rank 0 is. It
// returns only on failure.
func (j job) exec(getenv func(string) string, self string) error {
	byHand := fmt.Sprintf("; on the first node of job %s call: rankpool top", j.id)
	srun, err := exec.LookPath("srun")
	if err != nil {
		return fmt.Errorf("srun not found%s", byHand)
	}
	id, host, err := j.find(slurm.Detect(getenv))
	if err != nil {
		return fmt.Errorf("%w%s", err, byHand)
	}
	err = unix.Exec(srun, j.command(id, host, self), os.Environ())
	return fmt.Errorf("srun cannot be started: %w", err)
}

// command returns the step that runs top in a job, on host.
func (j job) command(id, host, self string) []string {
	terminal := "--input=none"
	if j.live {
		terminal = "--pty"
	}
	return append([]string{
		"srun", "--overlap", "--jobid=" + id, "--nodes=1", "--ntasks=1", "--nodelist=" + host,
		"--mpi=none", "--gres=none", "--cpu-bind=none", "--job-name=rankpool-top", terminal, self, "top",
	}, j.args...)
}

// find returns the job's number and its first node, from this process's own job, else from squeue.
func (j job) find(own slurm.Job) (id, host string, err error) {
	if own.JobID == j.id && own.FirstHost() != "" {
		return own.JobID, own.FirstHost(), nil
	}
	out, err := exec.Command("squeue", "--noheader", "--states=RUNNING", "--format=%A %N",
		"--jobs="+j.id).Output()
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		return "", "", fmt.Errorf("squeue does not know job %s: %s", j.id,
			strings.TrimSpace(string(exit.Stderr)))
	} else if err != nil {
		return "", "", fmt.Errorf("squeue --jobs=%s failed: %w", j.id, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Fields(lines[0])
	switch {
	case len(lines) > 1:
		return "", "", fmt.Errorf("job %s is an array; name one of its tasks as in --job %s_0", j.id,
			j.id)
	case len(fields) != 2:
		return "", "", fmt.Errorf("job %s does not run", j.id)
	}
	host = slurm.Job{NodeList: fields[1]}.FirstHost()
	if host == "" {
		return "", "", fmt.Errorf("squeue lists the nodes of job %s as %q, which is not a list of nodes",
			j.id, fields[1])
	}
	return fields[0], host, nil
}
