package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

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

// TestToldToEnd cancels all ranks from outside in mid-stage: each returns the cause, and leaves no
// temporary.
func TestToldToEnd(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	told := errors.New("told to end")
	ctx, end := context.WithCancelCause(t.Context())
	defer end(nil)
	errs := make([]error, 3)
	var all sync.WaitGroup
	for rank, peers := range newMemory(3) {
		target := newFaulty(func(op, _ string) error {
			if op == "write" {
				end(told)
			}
			return nil
		})
		all.Go(func() {
			_, errs[rank] = Run(ctx, peers, Options{
				Plan: func(ctx context.Context) (*Plan, error) {
					return Walk(ctx, System{}, src, WalkOptions{})
				},
				Dest: filepath.Join(base, strconv.Itoa(rank)), Mode: Replicate, ChunkBytes: 4096,
				Target: target,
			})
		})
	}
	all.Wait()
	for rank, err := range errs {
		if !errors.Is(err, told) {
			t.Errorf("rank %d: %v", rank, err)
		}
		noPartOf(t, src, filepath.Join(base, strconv.Itoa(rank)))
	}
}
