package slurm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	zone := time.FixedZone("here", 3600)
	if got, err := ParseTime(" 2026-11-20T17:00:00\n", zone); err != nil ||
		!got.Equal(time.Date(2026, 11, 20, 16, 0, 0, 0, time.UTC)) {
		t.Errorf("ParseTime = %v, %v", got, err)
	}
	for text, known := range map[string]bool{
		"N/A": false, "NONE": false, "Unknown": false, "UNLIMITED": false, "": false, "17:00": true,
		"2026-13-01T00:00:00": true, "lots": true,
	} {
		if got, err := ParseTime(text, zone); err == nil || errors.Is(err, ErrNoEndTime) == known ||
			!got.IsZero() {
			t.Errorf("ParseTime(%q) = %v, %v", text, got, err)
		}
	}
}

func FuzzParseTime(f *testing.F) {
	f.Add("2026-11-20T17:00:00")
	f.Add("N/A")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseTime(text, time.UTC)
		if err != nil && !got.IsZero() || err == nil &&
			!strings.HasPrefix(strings.TrimSpace(text), got.Format("2006-01-02T15:04:05")) {
			t.Errorf("ParseTime(%q) = %v, %v", text, got, err)
		}
	})
}

func TestEndTime(t *testing.T) {
	failed := errors.New("slurm_load_jobs error: Unable to contact slurm controller")
	for _, c := range []struct {
		name, env, out string
		fails          error
		want           int64
		err            error
		asked          bool
	}{
		{name: "no job", err: ErrNoEndTime},
		{name: "variable", env: "SLURM_JOB_ID=7 SLURM_JOB_END_TIME=1795194000", want: 1795194000},
		{
			name: "infinite", env: "SLURM_JOB_ID=7 SLURM_JOB_END_TIME=4294967295", out: "N/A\n",
			err: ErrNoEndTime, asked: true,
		},
		{
			name: "squeue", env: "SLURM_JOB_ID=7", out: "2026-11-20T17:00:00\n", want: 1795194000,
			asked: true,
		},
		{
			name: "malformed variable", env: "SLURM_JOB_ID=7 SLURM_JOB_END_TIME=soon",
			out: "2026-11-20T17:00:00\n", want: 1795194000, asked: true,
		},
		{
			name: "components", env: "SLURM_JOB_ID=7",
			out: "N/A\n2026-11-20T17:00:01\n2026-11-20T17:00:00\n", want: 1795194000, asked: true,
		},
		{name: "gone", env: "SLURM_JOBID=7", out: "", err: ErrNoEndTime, asked: true},
		{name: "no controller", env: "SLURM_JOB_ID=7", fails: failed, err: failed, asked: true},
	} {
		asked := false
		run := func(ctx context.Context, name string, args ...string) (string, error) {
			asked = true
			if _, bounded := ctx.Deadline(); !bounded ||
				name+" "+strings.Join(args, " ") != "squeue --noheader --jobs=7 --format=%e" {
				t.Errorf("%s: ran %s %q", c.name, name, args)
			}
			return c.out, c.fails
		}
		env := variablesOf(strings.Fields(c.env))
		got, err := EndTime(t.Context(), env.get, run, time.UTC)
		if !errors.Is(err, c.err) || asked != c.asked || c.err == nil && got.Unix() != c.want {
			t.Errorf("%s: EndTime = %v, %v, squeue asked: %v", c.name, got, err, asked)
		}
	}
}
