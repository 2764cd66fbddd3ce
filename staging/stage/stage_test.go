package stage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/mpicache/transport"
)

// stageAll runs n ranks into base/0, base/1, …, and returns each rank's report and error.
func stageAll(n int, src, base string, change func(rank int, o *Options)) ([]*Report, []error) {
	return stageOver(newMemory(n), src, base, change)
}

func stageOver(group []*memory, src, base string, change func(rank int, o *Options)) (
	[]*Report, []error,
) {
	reports, errs := make([]*Report, len(group)), make([]error, len(group))
	var all sync.WaitGroup
	for rank, peer := range group {
		opt := Options{
			Plan: func(ctx context.Context) (*Plan, error) {
				return Walk(ctx, src, nil)
			},
			Dest: filepath.Join(base, fmt.Sprint(rank)), ChunkBytes: 4 << 10, Buffers: 2, Readers: 3,
			Writers: 2,
		}
		if change != nil {
			change(rank, &opt)
		}
		all.Go(func() { reports[rank], errs[rank] = Run(context.Background(), peer, opt) })
	}
	all.Wait()
	return reports, errs
}

// describe walks a tree independently: it returns the kind, mode, time, content and link text of
// every name below root, without the link and the journals.
func describe(t fatal, root string) map[string]string {
	tree := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if rel == "." {
			return nil
		}
		if rel == idLink || isOurs(rel) && strings.HasSuffix(rel, journalSuffix) {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		switch {
		case entry.IsDir():
			tree[rel] = fmt.Sprintf("folder %o %d", st.Mode, st.Mtim.Nano())
		case entry.Type()&os.ModeSymlink != 0:
			text, err := os.Readlink(path)
			if err != nil {
				return err
			}
			tree[rel] = fmt.Sprintf("link %s %d", text, st.Mtim.Nano())
		default:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			tree[rel] = fmt.Sprintf("file %o %d %x", st.Mode, st.Mtim.Nano(), sha256.Sum256(data))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return tree
}

type fatal interface {
	Fatalf(format string, args ...any)
}

// drawTree makes a random tree: empty and sparse files, names with newlines or invalid UTF-8, links
// of both kinds, empty folders.
func drawTree(t *rapid.T, root string) {
	folders := []string{root}
	name := rapid.SampledFrom([]string{
		"a", "b-", "b", "\n", "\xff\xfe", " x ", ".hidden", "#c", `"q"`,
		strings.Repeat("n", 255), "日本",
	})
	var files []string
	mustDo(t, os.Mkdir(root, 0o755))
	for range rapid.IntRange(0, 25).Draw(t, "names") {
		in := rapid.SampledFrom(folders).Draw(t, "in")
		path := filepath.Join(in, name.Draw(t, "name"))
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		mode := rapid.SampledFrom([]os.FileMode{0o644, 0o600, 0o755, 0o444}).Draw(t, "mode")
		when := time.Unix(rapid.Int64Range(1, 2e9).Draw(t, "time"),
			rapid.Int64Range(0, 1e9-1).Draw(t, "ns"))
		switch kind := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case kind < 3 && len(folders) < 6 && len(path) < 2000:
			mustDo(t, os.Mkdir(path, 0o755))
			folders = append(folders, path)
		case kind == 3 && len(files) > 0:
			mustDo(t, os.Link(rapid.SampledFrom(files).Draw(t, "old"), path))
		case kind == 4:
			mustDo(t, os.Symlink(rapid.SampledFrom([]string{"a", "../nowhere", "/", "\n\xff"}).Draw(
				t, "text"), path))
		case kind == 5:
			f, err := os.Create(path)
			mustDo(t, err)
			mustDo(t, f.Truncate(int64(rapid.IntRange(0, 300<<10).Draw(t, "size"))))
			_, err = f.WriteAt([]byte("data"), int64(rapid.IntRange(0, 200<<10).Draw(t, "at")))
			mustDo(t, err)
			mustDo(t, f.Close())
			files = append(files, path)
		default:
			size := rapid.SampledFrom([]int{0, 1, 100, 4095, 4096, 4097, 9000, 30000}).Draw(t, "size")
			mustDo(t, os.WriteFile(path, bytes.Repeat([]byte(path), size/len(path)+1)[:size], 0o644))
			mustDo(t, os.Chmod(path, mode))
			mustDo(t, os.Chtimes(path, when, when))
			files = append(files, path)
		}
	}
	for _, folder := range folders[1:] {
		if rapid.Bool().Draw(t, "read-only") {
			mustDo(t, os.Chmod(folder, 0o555))
		}
	}
}

func mustDo(t fatal, err error) {
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// checkSame compares the trees of a replica.
func checkSame(t fatal, want, got map[string]string) {
	for path, entry := range want {
		if got[path] != entry {
			t.Fatalf("%q is\n%s, want\n%s", path, got[path], entry)
		}
	}
	for path := range got {
		if want[path] == "" {
			t.Fatalf("%q is there and should not be", path)
		}
	}
}

// TestReplicateIsTheSameTree stages random trees to every rank: equal trees, everything read once,
// and nothing the second time.
func TestReplicateIsTheSameTree(t *testing.T) {
	checkTrees(t, func(t *rapid.T, dir, src string) {
		want, bytesOnce, files := describe(t, src), int64(0), int64(0)
		plan, err := Walk(context.Background(), src, nil)
		mustDo(t, err)
		for i := range plan.Items {
			if plan.Items[i].Kind == Regular {
				files++
				bytesOnce += plan.Items[i].Size
			}
		}
		n := rapid.IntRange(1, 5).Draw(t, "ranks")
		reports, errs := stageAll(n, src, dir, func(_ int, o *Options) { o.Mode = Replicate })
		for rank := range n {
			mustDo(t, errs[rank])
			checkSame(t, want, describe(t, filepath.Join(dir, fmt.Sprint(rank))))
		}
		r := reports[0]
		if r.Failed != 0 || r.Skipped != 0 || r.Copied != int64(n)*r.TotalItems ||
			r.StorageReads != files || r.StorageBytes > bytesOnce {
			t.Fatalf("%+v of %d files and %d bytes", r, files, bytesOnce)
		}
		reports, errs = stageAll(n, src, dir, func(_ int, o *Options) {
			o.Mode = Replicate
			o.Checksum = true
		})
		mustDo(t, errs[0])
		if r := reports[0]; r.Copied != 0 || r.Failed != 0 || r.Skipped != int64(n)*r.TotalItems ||
			r.StorageReads != 0 {
			t.Fatalf("the second run: %+v", r)
		}
		checkSame(t, want, describe(t, filepath.Join(dir, fmt.Sprint(n-1))))
	})
}

// TestPartitionCoversTheTree stages random trees in shares: their union is the tree, no file is
// there twice, and shares are balanced.
func TestPartitionCoversTheTree(t *testing.T) {
	checkTrees(t, func(t *rapid.T, dir, src string) {
		want, got := describe(t, src), map[string]string{}
		n := rapid.IntRange(1, 5).Draw(t, "ranks")
		shared := rapid.Bool().Draw(t, "one destination")
		reports, errs := stageAll(n, src, dir, func(_ int, o *Options) {
			if shared {
				o.Dest = filepath.Join(dir, "all")
			}
		})
		for rank := range n {
			mustDo(t, errs[rank])
			if shared {
				got = describe(t, filepath.Join(dir, "all"))
				continue
			}
			for path, entry := range describe(t, filepath.Join(dir, fmt.Sprint(rank))) {
				if got[path] != "" && !strings.HasPrefix(entry, "folder") {
					t.Fatalf("%q is on two ranks", path)
				}
				got[path] = entry
			}
		}
		checkSame(t, want, got)
		if r := reports[0]; r.Failed != 0 || r.Copied != r.TotalItems || r.Bytes != r.TotalBytes {
			t.Fatalf("%+v", r)
		}
	})
}

// checkTrees checks a property of random trees: each is at src, in a folder dir.
func checkTrees(t *testing.T, property func(t *rapid.T, dir, src string)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		dir := tempDir(t)
		defer removeAll(dir)
		src := filepath.Join(dir, "src")
		drawTree(t, src)
		property(t, dir, src)
	})
}

func tempDir(t fatal) string {
	dir, err := os.MkdirTemp("", "rp")
	mustDo(t, err)
	return dir
}

// removeAll removes a tree with read-only folders.
func removeAll(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			_ = os.Chmod(path, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// memory is a rank of a group inside the test.
type memory struct {
	*transport.Local
	posts func(kind byte) // is called before a message is sent
}

// newMemory returns the n ranks of a group.
func newMemory(n int) []*memory {
	group := make([]*memory, n)
	for i, rank := range transport.NewLocal(n) {
		group[i] = &memory{rank.(*transport.Local), func(byte) {}}
	}
	return group
}

func (m *memory) Post(to int, msg []byte) {
	m.posts(msg[0])
	m.Local.Post(to, msg)
}

func TestCancelled(t *testing.T) {
	src, base := smallTree(t), t.TempDir()
	_, errs := stageAll(2, src, base, func(_ int, o *Options) {
		o.Plan = func(context.Context) (*Plan, error) { return nil, os.ErrDeadlineExceeded }
	})
	for rank, want := range []string{"i/o timeout", "rank 0: i/o timeout"} {
		if errs[rank] == nil || errs[rank].Error() != want {
			t.Errorf("rank %d: %v, want %s", rank, errs[rank], want)
		}
	}
}
