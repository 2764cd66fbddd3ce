package stage

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func paths(plan *Plan) (names []string) {
	for i := range plan.Items {
		names = append(names, fmt.Sprintf("%d:%s", plan.Items[i].Kind, plan.Items[i].Path))
	}
	return names
}

func TestWalkLinks(t *testing.T) {
	src := smallTree(t)
	mustDo(t, os.Symlink("sub", filepath.Join(src, "to-sub")))
	mustDo(t, os.Symlink("nowhere", filepath.Join(src, "broken")))
	mustDo(t, os.Symlink("..", filepath.Join(src, "sub", "loop")))
	mustDo(t, unix.Mkfifo(filepath.Join(src, "pipe"), 0o600))
	mustDo(t, os.WriteFile(filepath.Join(src, statePrefix+"x"), nil, 0o600))
	plan, err := Walk(t.Context(), src, nil)
	mustDo(t, err)
	want := []string{
		"1:", "2:broken", "0:large", "2:link", "1:sub", "1:sub/empty", "0:sub/file0", "0:sub/file1",
		"0:sub/file2", "0:sub/file3", "0:sub/file4", "2:sub/loop", "2:to-sub",
	}
	if got := paths(plan); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(plan.Failed) != 1 || plan.Failed[0].Path != "pipe" {
		t.Errorf("failed: %+v", plan.Failed)
	}
}

// TestWalkRoots walks what is a file or is missing.
func TestWalkRoots(t *testing.T) {
	src := smallTree(t)
	for name, want := range map[string]string{
		"large": "", "missing": "no such file",
	} {
		plan, err := Walk(t.Context(), filepath.Join(src, name), nil)
		if want == "" && (err != nil || !slices.Equal(paths(plan), []string{"1:", "0:large"})) ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %+v, %v", name, plan, err)
		}
	}
}

func TestSelect(t *testing.T) {
	src := smallTree(t)
	info, err := os.Stat(filepath.Join(src, "large"))
	mustDo(t, err)
	modTime := info.ModTime().UnixNano()
	plan, err := Select(t.Context(), src, []Selected{
		{Path: "sub/file3"},
		{Path: "sub/empty"},
		{Path: "large", Indexed: true, Size: info.Size(), ModTime: modTime},
		{Path: "sub/file1", Indexed: true, Size: 999},
		{Path: "link", Indexed: true, Size: -1, ModTime: modTime, Sum: 7},
		{Path: "sub/file2", Indexed: true, Size: -1, ModTime: 1},
		{Path: "missing"},
	}, nil)
	mustDo(t, err)
	if got, want := paths(plan), []string{
		"1:", "0:large", "0:link", "1:sub", "1:sub/empty",
		"0:sub/file3",
	}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var reasons []string
	for _, f := range plan.Failed {
		reasons = append(reasons, f.Path+" "+f.Reason)
	}
	want := []string{
		"missing cannot be examined: stat: no such file or directory",
		"sub/file1 has 1000 bytes, its index says 999; index the data set again",
		"sub/file2 was modified since it was indexed; index the data set again",
	}
	if !slices.Equal(reasons, want) {
		t.Errorf("%q, want %q", reasons, want)
	}
	reports, errs := stageAll(1, src, t.TempDir(), func(_ int, o *Options) {
		o.Plan = func(context.Context) (*Plan, error) { return plan, nil }
	})
	mustDo(t, errs[0])
	if r := reports[0]; r.Failed != 4 || r.Copied != 2 ||
		!strings.Contains(r.Failures[0].Reason, "its index says 0000000000000007") {
		t.Errorf("%+v", r)
	}
}

// TestDealing checks both ways of dealing on random plans: every file has one owner or reader, and
// the shares are balanced.
func TestDealing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 9).Draw(t, "ranks")
		plan, total, largest := &Plan{}, int64(0), int64(0)
		for i, size := range rapid.SliceOf(rapid.Int64Range(0, 1<<40)).Draw(t, "sizes") {
			item := Item{Path: fmt.Sprint(i), Info: Info{Size: size}}
			plan.Items = append(plan.Items, item)
			total, largest = total+item.weight(), max(largest, item.weight())
		}
		needs := make([]set, ranks)
		owners, load := make([]int, len(plan.Items)), make([]int64, ranks)
		for rank := range needs {
			own := owned(plan, Partition, rank, ranks)
			needs[rank] = owned(plan, Replicate, rank, ranks)
			for i := range plan.Items {
				if own.has(i) {
					owners[i]++
					load[rank] += plan.Items[i].weight()
				}
				if !needs[rank].has(i) {
					t.Fatalf("rank %d does not get item %d", rank, i)
				}
			}
		}
		readLoad, readBy := make([]int64, ranks), make([]int, len(plan.Items))
		bytesShare, opensShare := 0.0, 0.0
		for rank := range needs {
			h := readers(plan, needs, rank)
			bytesShare, opensShare = bytesShare+h.bytesShare, opensShare+h.opensShare
			for _, i := range h.items {
				readBy[i]++
				readLoad[rank] += plan.Items[i].weight()
			}
		}
		for i := range plan.Items {
			if owners[i] != 1 || readBy[i] != 1 {
				t.Fatalf("item %d has %d owners and %d readers", i, owners[i], readBy[i])
			}
		}
		if len(plan.Items) > 0 && (math.Abs(opensShare-1) > 1e-9 ||
			total > int64(len(plan.Items))*openBytes && math.Abs(bytesShare-1) > 1e-9) {
			t.Fatalf("the shares of the limits are %v and %v in total", bytesShare, opensShare)
		}
		for rank := range needs {
			if fair := total / int64(ranks); load[rank] > fair+largest+1 {
				t.Fatalf("rank %d gets %d, fair is %d, the largest file %d", rank, load[rank], fair, largest)
			}
			if fair := total / int64(ranks); readLoad[rank] > fair+largest {
				t.Fatalf("rank %d reads %d, fair is %d, the largest file %d", rank, readLoad[rank], fair,
					largest)
			}
		}
	})
}

// TestChainCrossesOnce checks what the buffers' classes rely on: a chain goes from a higher rank to
// a lower one at most once.
func TestChainCrossesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		needs := make([]set, rapid.IntRange(1, 12).Draw(t, "ranks"))
		want := 0
		for rank := range needs {
			needs[rank] = newSet(1)
			if rapid.Bool().Draw(t, "lacks") {
				needs[rank].add(0)
				want++
			}
		}
		from := rapid.IntRange(0, len(needs)-1).Draw(t, "reader")
		if needs[from].has(0) {
			want--
		}
		crossed, at := 0, int32(from)
		after := chain(needs, 0, from)
		for _, next := range after {
			if next < at {
				crossed++
			}
			at = next
		}
		if crossed > 1 || len(after) != want || slices.Contains(after, int32(from)) {
			t.Fatalf("from %d: %v", from, after)
		}
	})
}

func TestReadList(t *testing.T) {
	for _, test := range []struct {
		text string
		want []string
		err  string
	}{
		{"a\n# remark\n\n./b/../c\n.x\n./#y\n\"z\n", []string{"a", "c", ".x", "#y", "\"z"}, ""},
		{"/data/set/a\n/data/set\n.", []string{"a", "", ""}, ""},
		{"ok\n../x", nil, `list, line 2: "../x" leads out of /data/set`},
		{"/data/settled", nil, `"/data/settled" leads out of /data/set`},
	} {
		part, err := ReadList(test.text, "/data/set")
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q: %v, want %q", test.text, err, test.err)
			}
			continue
		}
		mustDo(t, err)
		var got []string
		for _, s := range part {
			got = append(got, s.Path)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: %q, want %q", test.text, got, test.want)
		}
	}
}

// FuzzReadList checks that no list leads out of its root.
func FuzzReadList(f *testing.F) {
	f.Add("a\n./#b\n#c\n")
	f.Fuzz(func(t *testing.T, text string) {
		part, _ := ReadList(text, "/r") // nothing, if it is not a list
		for _, s := range part {
			if !filepath.IsLocal("./"+s.Path) || strings.HasPrefix(s.Path, "/") {
				t.Fatalf("%q", s.Path)
			}
		}
	})
}
