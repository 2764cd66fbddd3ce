package slurm

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Scratch returns the folder for node-local data and the rule that chose it, such as
// "$SLURM_TMPDIR".
//
// Scratch chooses the first of $SLURM_TMPDIR, $LOCAL_SCRATCH, /mnt/bb/$USER, $TMPDIR and /tmp that
// is an absolute path and usable; usable returns nil, or why the folder is unsuitable. If none is
// usable, the error gives the reason for each folder.
//
// Source: SLURM_TMPDIR is set at sites of the Digital Research Alliance of Canada, LOCAL_SCRATCH at
// CSC; /mnt/bb/$USER is the node's NVMe on Frontier and Summit, with "#SBATCH -C nvme".
func Scratch(getenv func(string) string, usable func(dir string) error) (
	dir, rule string, err error,
) {
	var refused []error
	for _, c := range []struct{ dir, rule string }{
		{getenv("SLURM_TMPDIR"), "$SLURM_TMPDIR"},
		{getenv("LOCAL_SCRATCH"), "$LOCAL_SCRATCH"},
		{burstBuffer(getenv("USER")), "/mnt/bb/$USER"},
		{getenv("TMPDIR"), "$TMPDIR"},
		{"/tmp", "/tmp"},
	} {
		if !filepath.IsAbs(c.dir) {
			continue
		}
		err := usable(c.dir)
		if err == nil {
			return c.dir, c.rule, nil
		}
		refused = append(refused, fmt.Errorf("%s (%s): %w", c.dir, c.rule, err))
	}
	return "", "", fmt.Errorf("slurm: no node-local folder is usable for scratch data: %w",
		errors.Join(refused...))
}

func burstBuffer(user string) string {
	if user == "" || user != filepath.Base(user) || user == ".." || user == "." {
		return ""
	}
	return "/mnt/bb/" + user
}
