package stage

import (
	"bytes"
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
	mustDo(t, os.Mkdir(filepath.Join(src, stateName), 0o755))
	mustDo(t, os.WriteFile(filepath.Join(src, tempPrefix+"x"+tempSuffix), nil, 0o600))
	sub := []string{
		"1:sub", "1:sub/empty", "0:sub/file0", "0:sub/file1", "0:sub/file2", "0:sub/file3",
		"0:sub/file4",
	}
	for _, test := range []struct {
		links  LinkPolicy
		items  []string
		failed []string
	}{
		{
			CopyLinks, append([]string{"1:", "2:broken", "0:large", "2:link"},
				append(slices.Clone(sub), "2:sub/loop", "2:to-sub")...),
			[]string{"pipe"},
		},
		{SkipLinks, append([]string{"1:", "0:large"}, sub...), []string{"pipe"}},
		{FollowLinks, nil, []string{"broken", "pipe", "sub/loop", "to-sub/loop"}},
	} {
		plan, err := Walk(t.Context(), System{}, src, WalkOptions{Links: test.links})
		mustDo(t, err)
		if got := paths(plan); test.items != nil && !slices.Equal(got, test.items) {
			t.Errorf("%s: %q, want %q", test.links, got, test.items)
		}
		var failed []string
		for _, f := range plan.Failed {
			failed = append(failed, f.Path)
		}
		if !slices.Equal(failed, test.failed) {
			t.Errorf("%s: failed %q, want %q", test.links, failed, test.failed)
		}
	}
}

// TestFollowedTree stages with links followed: what was a link is a file with its target's content.
func TestFollowedTree(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	mustDo(t, os.Symlink("sub", filepath.Join(src, "to-sub")))
	_, errs := stageAll(1, src, base, func(_ int, o *Options) {
		o.Plan = func(ctx context.Context) (*Plan, error) {
			return Walk(ctx, System{}, src, WalkOptions{Links: FollowLinks})
		}
	})
	mustDo(t, errs[0])
	for _, path := range []string{"link", "to-sub/file4"} {
		want, err := os.ReadFile(filepath.Join(src, path))
		mustDo(t, err)
		info, err := os.Lstat(filepath.Join(base, "0", path))
		mustDo(t, err)
		got, err := os.ReadFile(filepath.Join(base, "0", path))
		mustDo(t, err)
		if !info.Mode().IsRegular() || !bytes.Equal(got, want) {
			t.Errorf("%s is %v with %d bytes", path, info.Mode(), len(got))
		}
	}
}

func TestSelect(t *testing.T) {
	src := smallTree(t)
	info, err := System{}.Lstat(filepath.Join(src, "large"))
	mustDo(t, err)
	plan, err := Select(t.Context(), System{}, src, []Selected{
		{Path: "sub/file3"},
		{Path: "sub/empty"},
		{Path: "large", Indexed: true, Size: info.Size, ModTime: info.ModTime},
		{Path: "sub/file1", Indexed: true, Size: 999},
		{Path: "link", Indexed: true, Size: -1, ModTime: info.ModTime, Sum: 7},
		{Path: "sub/file2", Indexed: true, Size: -1, ModTime: 1},
		{Path: "missing"},
	}, WalkOptions{})
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
		"missing cannot be examined: lstat: no such file or directory",
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
			item := Item{Path: fmt.Sprint(i), Size: size, Primary: -1}
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
		readLoad := make([]int64, ranks)
		read, pieces := make([]int64, len(plan.Items)), make([]int64, len(plan.Items))
		cutBytes := rapid.SampledFrom([]int64{1 << 34, 1 << 37, math.MaxInt64 / 2}).Draw(t, "cut")
		largestPiece, all, bytesShare, opensShare := int64(0), int64(0), 0.0, 0.0
		for rank := range needs {
			h := readers(plan, needs, rank, cutBytes)
			bytesShare, opensShare = bytesShare+h.bytesShare, opensShare+h.opensShare
			for _, p := range h.pieces {
				read[p.item] += p.bytes
				pieces[p.item]++
				readLoad[rank] += p.weight()
				largestPiece = max(largestPiece, p.weight())
				if len(p.chain) != ranks-1 {
					t.Fatalf("a chain of %d after rank %d of %d", len(p.chain), rank, ranks)
				}
				if p.bytes > cutBytes || p.offset != int64(p.number)*cutBytes && p.of > 1 {
					t.Fatalf("a piece %+v, where files are cut into %d bytes", p, cutBytes)
				}
			}
		}
		for i := range plan.Items {
			want := max(1, (plan.Items[i].Size+cutBytes-1)/cutBytes)
			if owners[i] != 1 || read[i] != plan.Items[i].Size || pieces[i] != want {
				t.Fatalf("item %d has %d owners, and %d bytes are read in %d pieces", i, owners[i], read[i],
					pieces[i])
			}
			all += pieces[i] * openBytes
			all += read[i]
		}
		if len(plan.Items) > 0 && (math.Abs(opensShare-1) > 1e-9 ||
			total > int64(len(plan.Items))*openBytes && math.Abs(bytesShare-1) > 1e-9) {
			t.Fatalf("the shares of the limits are %v and %v in total", bytesShare, opensShare)
		}
		for rank := range needs {
			if fair := total / int64(ranks); load[rank] > fair+largest+1 {
				t.Fatalf("rank %d gets %d, fair is %d, the largest file %d", rank, load[rank], fair, largest)
			}
			if fair := all / int64(ranks); readLoad[rank] > fair+largestPiece {
				t.Fatalf("rank %d reads %d, fair is %d, the largest piece %d", rank, readLoad[rank], fair,
					largestPiece)
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
		nul  bool
		want []string
		err  string
	}{
		{"a\n# remark\n\n./b/../c\n\"x\\ny\"\n", false, []string{"a", "c", "x\ny"}, ""},
		{"/data/set/a\n/data/set\n.", false, []string{"a", "", ""}, ""},
		{"a\nb\x00#c\x00\"\x00", true, []string{"a\nb", "#c", `"`}, ""},
		{"ok\n../x", false, nil, `list, line 2: "../x" leads out of /data/set`},
		{"/data/settled", false, nil, `"/data/settled" is not in /data/set`},
		{"\"x", false, nil, `"x is not a quoted path`},
		{`"a\x00"`, false, nil, "leads out"},
	} {
		part, err := ReadList(strings.NewReader(test.text), "/data/set", test.nul)
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

// FuzzReadList checks that no list leads out of its root, and that what failed can be listed again.
func FuzzReadList(f *testing.F) {
	f.Add("a\n\"b\\n\"\n#c\n", false)
	f.Add("a\x00../b", true)
	f.Fuzz(func(t *testing.T, text string, nul bool) {
		part, err := ReadList(strings.NewReader(text), "/r", nul)
		if err != nil {
			return
		}
		var failures []Failure
		for _, s := range part {
			if !filepath.IsLocal("./"+s.Path) || strings.HasPrefix(s.Path, "/") {
				t.Fatalf("%q", s.Path)
			}
			failures = append(failures, Failure{Path: s.Path, Reason: "why\nso"})
		}
		again, err := ReadList(bytes.NewReader(FormatFailures(failures)), "/r", false)
		if err != nil || !slices.Equal(again, part) {
			t.Fatalf("%v: %v became %v", err, part, again)
		}
	})
}

// FuzzRecord checks that a record that was parsed and written again parses to the same record.
func FuzzRecord(f *testing.F) {
	f.Add("0123456789abcdef", "1 5 6 7 8 9 /a b\n")
	f.Fuzz(func(t *testing.T, sum, source string) {
		r, ok := parseRecord(sum, source)
		if !ok {
			return
		}
		if again, ok := parseRecord(r.checksum(), r.source()); !ok || again != r {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}
