package slurm

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestScratch(t *testing.T) {
	for _, c := range []struct {
		env, usable string
		dir, rule   string
	}{
		{
			"SLURM_TMPDIR=/a LOCAL_SCRATCH=/b USER=ada TMPDIR=/c", "/a /b /mnt/bb/ada /c /tmp", "/a",
			"$SLURM_TMPDIR",
		},
		{
			"SLURM_TMPDIR=/a LOCAL_SCRATCH=/b USER=ada TMPDIR=/c", "/b /mnt/bb/ada /c /tmp", "/b",
			"$LOCAL_SCRATCH",
		},
		{"SLURM_TMPDIR=/a USER=ada TMPDIR=/c", "/mnt/bb/ada /c /tmp", "/mnt/bb/ada", "/mnt/bb/$USER"},
		{"USER=ada TMPDIR=/c", "/c /tmp", "/c", "$TMPDIR"},
		{"USER=ada TMPDIR=c", "c /tmp", "/tmp", "/tmp"},
		{"USER=../../etc", "/mnt/bb/../../etc /etc /tmp", "/tmp", "/tmp"},
		{"", "", "", ""},
	} {
		full := errors.New("is full")
		dir, rule, err := Scratch(variablesOf(strings.Fields(c.env)).get,
			func(dir string) error {
				if slices.Contains(strings.Fields(c.usable), dir) {
					return nil
				}
				return full
			})
		if dir != c.dir || rule != c.rule || (err != nil) != (dir == "") {
			t.Errorf("%+v: Scratch = %q, %q, %v", c, dir, rule, err)
		}
		if err != nil && (!errors.Is(err, full) ||
			!strings.Contains(err.Error(), "/tmp (/tmp): is full")) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
