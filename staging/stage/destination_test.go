package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// TestTwoRunsIntoOneDestination starts several runs at once: at least one of them stages, and the
// others return the reason why they do not.
func TestTwoRunsIntoOneDestination(t *testing.T) {
	src, base := wideTree(t), t.TempDir()
	const runs = 4
	errs := make([]error, runs)
	var began, all sync.WaitGroup
	began.Add(runs)
	for run := range runs {
		all.Go(func() {
			began.Done()
			began.Wait()
			reports, failed := stageAll(1, src, base,
				func(_ int, o *Options) { o.Mode, o.Dest = Replicate, filepath.Join(base, "all") })
			errs[run] = failed[0]
			if failed[0] == nil && reports[0].Failed > 0 {
				t.Errorf("%d items failed, as %v", reports[0].Failed, reports[0].Failures[0])
			}
		})
	}
	all.Wait()
	staged := 0
	for _, err := range errs {
		switch {
		case err == nil:
			staged++ // several may stage one after another
		case !strings.Contains(err.Error(), "another \"rankpool "+
			"stage\" writes to "+filepath.Join(base, "all")):
			t.Error(err)
		}
	}
	if staged == 0 {
		t.Errorf("no run has staged: %v", errs)
	}
	if _, failed := stageAll(1, src, base, func(_ int, o *Options) {
		o.Mode, o.Dest = Replicate, filepath.Join(base, "all")
	}); failed[0] != nil {
		t.Errorf("afterwards: %v", failed[0])
	}
}

// wideTree is a data set that takes a moment to stage.
func wideTree(t *testing.T) string {
	dir := t.TempDir()
	for i := range 1000 {
		mustDo(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 1000), 0o600))
	}
	return dir
}

// TestHardLinkFollowsItsFile changes a file with two names between two runs: the second name gets
// the new bytes too.
func TestHardLinkFollowsItsFile(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	mustDo(t, os.Link(filepath.Join(src, "large"), filepath.Join(src, "sub", "other-name")))
	for _, want := range []int64{8, 2} {
		reports, errs := stageAll(1, src, base, nil)
		mustDo(t, errs[0])
		if got := reports[0].Copied; got != want {
			t.Errorf("copied %d, want %d", got, want)
		}
		checkSame(t, describe(t, src), describe(t, filepath.Join(base, "0")))
		mustDo(t, os.WriteFile(filepath.Join(src, "large"), []byte("new"), 0o644))
	}
}

// TestRecordOfAnotherClient checks that a record still fits if only the device differs, which every
// client numbers differently, and no longer fits if anything else does.
func TestRecordOfAnotherClient(t *testing.T) {
	plan := &Plan{Root: "/data", Items: []Item{{Path: "a b", Size: 1, ModTime: 2, Dev: 3, Inode: 4}}}
	r, ok := parseRecord("00000000000000ff", recordOf(plan, &plan.Items[0], 255, 9).source())
	if !ok || r.sum != 255 || r.placed != 9 {
		t.Fatalf("%+v, %v", r, ok)
	}
	for name, change := range map[string]func(p *Plan, i *Item){
		"device": func(_ *Plan, i *Item) { i.Dev++ }, "size": func(_ *Plan, i *Item) { i.Size++ },
		"time":  func(_ *Plan, i *Item) { i.ModTime++ },
		"inode": func(_ *Plan, i *Item) { i.Inode++ }, "path": func(_ *Plan, i *Item) { i.Path += "c" },
		"root": func(p *Plan, _ *Item) { p.Root += "c" },
	} {
		p, item := *plan, plan.Items[0]
		change(&p, &item)
		if got := r.fits(&p, &item); got != (name == "device") {
			t.Errorf("with another %s: fits is %v", name, got)
		}
	}
}

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
				return Walk(ctx, System{}, src, WalkOptions{})
			},
			Dest: dest, Sync: SyncNever,
		}
		if rank == 0 {
			opt.Target = slow
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
