package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestFoldersWaitForAllRanks makes rank 0 place files after rank 1 has finished, in one
// destination: the folders' times are the source's.
func TestFoldersWaitForAllRanks(t *testing.T) {
	src, dest := smallTree(t), filepath.Join(t.TempDir(), "all")
	group := newMemory(2)
	through := make(chan struct{})
	slow := newFaulty(func(op, _ string) error {
		if op == "rename" {
			<-through
		}
		return nil
	})
	errs := make([]error, 2)
	var all sync.WaitGroup
	group[1].posts = func(kind byte) {
		if kind == kindDone {
			close(through)
		}
	}
	for rank, peers := range group {
		opt := Options{
			Plan: func(ctx context.Context) (*Plan, error) {
				return Walk(ctx, src, nil)
			},
			Dest: dest,
		}
		if rank == 0 {
			opt.destFault = slow.fault
		}
		all.Go(func() { _, errs[rank] = Run(t.Context(), peers, opt) })
	}
	all.Wait()
	mustDo(t, errors.Join(errs...))
	checkSame(t, describe(t, src), describe(t, dest))
}

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
		stage := func(n int, prune bool) *Report {
			reports, errs := stageAll(n, src, base, func(_ int, o *Options) { o.Prune = prune })
			mustDo(t, errors.Join(errs...))
			return reports[0]
		}
		if r := stage(before, false); r.Stale != 0 {
			t.Fatalf("at first %d are stale: %q", r.Stale, r.StalePaths)
		}
		mustDo(t, os.WriteFile(filepath.Join(base, "0", "users"), []byte("mine"), 0o644))
		listed := stage(after, false)
		if listed.Pruned != 0 {
			t.Fatalf("%d were removed", listed.Pruned)
		}
		if r := stage(after, true); r.Stale != listed.Stale || r.Pruned != r.Stale ||
			r.Copied != 0 {
			t.Fatalf("found %d, then %+v", listed.Stale, r)
		}
		if r := stage(after, true); r.Stale != 0 || r.Copied != 0 {
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
			plan, err := Walk(ctx, src, nil)
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
// nothing in it is stale, also if a rank cannot know who else writes there.
func TestPruneOfSharedDestination(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	all := filepath.Join(base, "all")
	for run := range 4 {
		reports, errs := stageAll(3, src, base, func(rank int, o *Options) {
			o.Dest, o.Prune = all, run > 0
			if run == 3 && rank == 1 {
				o.destFault = newFaulty(on("readlink", "", unix.EPERM, 0)).fault
			}
		})
		mustDo(t, errors.Join(errs...))
		if r := reports[0]; r.Stale != 0 || run > 0 && r.Skipped != 7 {
			t.Errorf("run %d: %+v", run, r)
		}
	}
	checkSame(t, describe(t, src), describe(t, all))
}
