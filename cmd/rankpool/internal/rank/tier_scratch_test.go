package rank

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLocalDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		file:                           "not a directory",
		filepath.Join(file, "missing"): "not a directory",
		"/missing":                     "no such file or directory",
		"/dev/shm":                     "it is memory (tmpfs)",
	} {
		if err := localDisk(dir); err == nil || err.Error() != want {
			t.Errorf("localDisk(%s) = %v, want %q", dir, err, want)
		}
	}
}

func TestFindScratch(t *testing.T) {
	for _, name := range []string{"SLURM_TMPDIR", "LOCAL_SCRATCH", "USER", "TMPDIR"} {
		t.Setenv(name, "")
	}
	// The working directory of tests is on a disk wherever the module is.
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_TMPDIR", "/dev/shm")
	t.Setenv("LOCAL_SCRATCH", dir)
	if err := localDisk(dir); err != nil {
		if _, _, found := findScratch(); found != nil &&
			!strings.Contains(found.Error(), err.Error()) {
			t.Errorf("findScratch: %v, and not %v", found, err)
		}
		return
	}
	if got, rule, err := findScratch(); got != dir || rule != "$LOCAL_SCRATCH" || err != nil {
		t.Errorf("findScratch = %q, %q, %v", got, rule, err)
	}
}
