package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestStaleAfterAnotherPartition stages a random tree to more or fewer ranks than before. What
// rankpool staged and now belongs to another rank is stale, and Prune removes it; what a user put
// there, or changed, stays.
func TestStaleAfterAnotherPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		defer removeAll(dir)
		src, base := filepath.Join(dir, "src"), filepath.Join(dir, "dest")
		drawTree(t, src)
		before, after := rapid.IntRange(1, 4).Draw(t, "ranks before"),
			rapid.IntRange(1, 4).Draw(t, "ranks after")
		sidecars := rapid.Bool().Draw(t, "no extended attributes")
		target := newFaulty(func(op, _ string) error {
			if sidecars && strings.HasSuffix(op, "xattr") {
				return unix.ENOTSUP
			}
			return nil
		})
		stage := func(n int, prune, dry bool) *Report {
			reports, errs := stageAll(n, src, base, func(_ int, o *Options) {
				o.Target, o.Prune, o.DryRun = target, prune, dry
			})
			mustDo(t, errors.Join(errs...))
			return reports[0]
		}
		if r := stage(before, false, false); r.Stale != 0 {
			t.Fatalf("at first %d are stale: %q", r.Stale, r.StalePaths)
		}
		mustDo(t, os.WriteFile(filepath.Join(base, "0", "users"), []byte("mine"), 0o644))
		dry, listed := stage(after, false, true), stage(after, false, false)
		if dry.Stale != listed.Stale || listed.Pruned != 0 {
			t.Fatalf("a dry run finds %d stale, the run %d, which removes %d", dry.Stale, listed.Stale,
				listed.Pruned)
		}
		if r := stage(after, true, false); r.Stale != listed.Stale || r.Pruned != r.Stale ||
			r.Copied != 0 {
			t.Fatalf("found %d, then %+v", listed.Stale, r)
		}
		if r := stage(after, true, false); r.Stale != 0 || r.Copied != 0 {
			t.Fatalf("once more: %+v", r)
		}
		want, places := describe(t, src), map[string]int{}
		for rank := range after {
			for path, entry := range describe(t, filepath.Join(base, fmt.Sprint(rank))) {
				switch {
				case path == "users" && rank == 0:
					places[path]++
				case want[path] == "":
					t.Fatalf("rank %d has %q", rank, path)
				case strings.HasPrefix(entry, "file"):
					places[path]++
				}
			}
		}
		for path, n := range places {
			if n != 1 {
				t.Fatalf("%q is at %d ranks", path, n)
			}
		}
		if places["users"] != 1 {
			t.Fatalf("the user's file is gone")
		}
	})
}

// TestPruneKeeps checks what Prune never removes, and that it removes the copy of a file that is
// gone.
func TestPruneKeeps(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	for _, name := range []string{"gone", "changed", "unlisted/gone"} {
		mustDo(t, os.MkdirAll(filepath.Dir(filepath.Join(src, name)), 0o755))
		mustDo(t, os.WriteFile(filepath.Join(src, name), []byte(name), 0o644))
	}
	_, errs := stageAll(1, src, base, nil)
	mustDo(t, errs[0])
	dest := filepath.Join(base, "0")
	mustDo(t, errors.Join(
		os.Remove(filepath.Join(src, "gone")), os.Remove(filepath.Join(src, "changed")),
		os.Remove(filepath.Join(src, "unlisted", "gone")),
		os.WriteFile(filepath.Join(dest, "changed"), []byte("altered"), 0o644),
		os.WriteFile(filepath.Join(dest, "users"), []byte("own"), 0o644),
		// has the attributes of large
		os.Link(filepath.Join(dest, "large"), filepath.Join(dest, "users link")),
		os.Mkdir(filepath.Join(dest, "users folder"), 0o755),
	))
	reports, errs := stageAll(1, src, base, func(_ int, o *Options) {
		o.Prune = true
		o.Plan = func(ctx context.Context) (*Plan, error) {
			plan, err := Walk(ctx, System{}, src, WalkOptions{})
			plan.Failed = append(plan.Failed, Failure{
				Path: "unlisted/gone", Reason: "could not be looked at",
			})
			return plan, err
		}
	})
	mustDo(t, errs[0])
	if r := reports[0]; r.Stale != 1 || r.Pruned != 1 ||
		!slices.Equal(r.StalePaths, []string{"gone"}) {
		t.Errorf("%+v", r)
	}
	for _, kept := range []string{
		"changed", "users", "users link", "users folder", "unlisted/gone",
		"large", "link",
	} {
		if _, err := os.Lstat(filepath.Join(dest, kept)); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestPruneOfSharedDestination stages a partition of several ranks to one folder, repeatedly:
// nothing in it is stale.
func TestPruneOfSharedDestination(t *testing.T) {
	for _, dry := range []bool{false, true} {
		t.Run(fmt.Sprint("dry ", dry), func(t *testing.T) {
			src, base := smallTree(t), t.TempDir()
			all := filepath.Join(base, "all")
			for run := range 3 {
				reports, errs := stageAll(3, src, base, func(_ int, o *Options) {
					o.Dest, o.Prune, o.DryRun = all, run > 0, run > 0 && dry
				})
				mustDo(t, errors.Join(errs...))
				if r := reports[0]; r.Stale != 0 {
					t.Errorf("run %d finds %q stale", run, r.StalePaths)
				}
			}
			checkSame(t, describe(t, src), describe(t, all))
		})
	}
}

// TestStaleWithoutTokens makes a rank fail to write its token: its destination is unknown, so its
// files are not stale copies on any rank.
func TestStaleWithoutTokens(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	all := filepath.Join(base, "all")
	_, errs := stageAll(3, src, base, func(_ int, o *Options) { o.Dest = all })
	mustDo(t, errors.Join(errs...))
	reports, errs := stageAll(3, src, base, func(rank int, o *Options) {
		o.Dest = all
		if rank == 1 {
			o.Target = newFaulty(on("create", "-rank1", unix.EACCES, 0))
		}
	})
	mustDo(t, errors.Join(errs...))
	if r := reports[0]; r.Stale != 0 || r.Skipped != 7 {
		t.Errorf("%+v", r)
	}
}
