package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"rankpool/mpicache/transport"
	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// testGroup returns rank 0 of a group whose other ranks serve until the test ends.
func testGroup(t *testing.T, ranks int) *Group {
	return testGroupOf(t, context.Background(), ranks)
}

func testGroupOf(t *testing.T, ctx context.Context, ranks int) *Group {
	transports := transport.NewLocal(ranks)
	group := NewGroup(transports[0])
	var serving sync.WaitGroup
	for _, rank := range transports[1:] {
		serving.Go(func() { NewGroup(rank).Serve(ctx, nil) })
	}
	t.Cleanup(func() {
		group.Dismiss()
		serving.Wait()
		for _, rank := range transports {
			stagingtest.Must(t, rank.Close())
		}
	})
	return group
}

func TestGroupAlone(t *testing.T) {
	var none *Group
	if NewGroup(transport.NewLocal(1)[0]) != nil || none.Rank() != 0 || none.Size() != 1 ||
		none.listers() != nil {
		t.Error("one rank is no process alone")
	}
	none.Dismiss()
	if g := testGroup(t, 3); g.Rank() != 0 || g.Size() != 3 {
		t.Errorf("rank %d of %d", g.Rank(), g.Size())
	}
}

// TestGroupList lists on another rank: results and errors are as on this rank.
func TestGroupList(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/\xff\n", "a/l -> .", "a/m -> gone", "b -> "+tooLong)
	remote := &remoteLister{testGroup(t, 2), 1}
	here, err := newFakeLister().list(t.Context(), root+"/a")
	stagingtest.Must(t, err)
	there, err := remote.list(t.Context(), root+"/a")
	stagingtest.Must(t, err)
	if !reflect.DeepEqual(here, there) {
		t.Errorf("here %+v, there %+v", here, there)
	}
	_, err = remote.list(t.Context(), root+"/gone")
	stagingtest.WantError(t, err, root+"/gone", "no such file", "(rank 1)")
	_, err = remote.list(t.Context(), root)
	stagingtest.WantError(t, err, root+"/b", "file name too long", "(rank 1)")
}

// TestGroupScanErrors makes ranks fail: the scan fails, names the path, and leaves no manifest.
func TestGroupScanErrors(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "b/2 -> "+tooLong, "c/3")
	for _, ranks := range []int{2, 4} {
		m, err := Scan(context.Background(), root,
			ScanOptions{Group: testGroup(t, ranks)})
		stagingtest.WantError(t, err, "staging: scan of "+root, root+"/b/2: file name too long")
		if m != nil {
			t.Error("there is a partial manifest")
		}
	}
	stopped, stop := context.WithCancelCause(context.Background())
	stop(errors.New("ended by signal"))
	group := testGroupOf(t, stopped, 2)
	_, err := (&remoteLister{group, 1}).list(context.Background(), root)
	stagingtest.WantError(t, err, "ended by signal", "(rank 1)")

	waiting := NewGroup(transport.NewLocal(2)[0]) // its rank 1 never answers
	ended, end := context.WithCancelCause(context.Background())
	end(errors.New("enough"))
	_, err = (&remoteLister{waiting, 1}).list(ended, root)
	stagingtest.WantError(t, err, "enough")
}

// TestGroupSameBytes writes the manifests that 1, 2 and 4 ranks make of one tree, and compares the
// files.
func TestGroupSameBytes(t *testing.T) {
	root := t.TempDir()
	for i := range 40 {
		for j := range i {
			stagingtest.Grow(t, root, fmt.Sprintf("c%d/d%d/%d", i%7, i, j))
		}
	}
	var first []byte
	for _, ranks := range []int{1, 2, 4} {
		var group *Group
		if ranks > 1 {
			group = testGroup(t, ranks)
		}
		m, err := Scan(context.Background(), root, ScanOptions{Group: group})
		stagingtest.Must(t, err)
		m, err = Checksums(context.Background(), m, ChecksumOptions{Group: group})
		stagingtest.Must(t, err)
		path := filepath.Join(t.TempDir(), "m.parquet")
		stagingtest.Must(t, dataset.WriteParquet(path, m))
		data, err := os.ReadFile(path)
		stagingtest.Must(t, err)
		if first == nil {
			first = data
		}
		if !bytes.Equal(data, first) {
			t.Errorf("%d ranks: the manifest is another", ranks)
		}
	}
}

// TestGroupLoop finds loops that only other ranks would walk into.
func TestGroupLoop(t *testing.T) {
	root := stagingtest.Tree(t, "a/1", "a/b/c -> ../../a", "out -> ../outside", "x/2")
	outside := filepath.Join(filepath.Dir(root), "outside")
	stagingtest.Must(t, os.Mkdir(outside, 0o755))
	stagingtest.Must(t, os.Symlink(root, filepath.Join(outside, "back")))
	_, err := Scan(context.Background(), root, ScanOptions{Group: testGroup(t, 3)})
	stagingtest.WantError(t, err, " leads back to ", "so the tree is infinite")
	stagingtest.Must(t, os.Remove(filepath.Join(root, "a/b/c")))
	_, err = Scan(context.Background(), root, ScanOptions{Group: testGroup(t, 3)})
	stagingtest.WantError(t, err, root+"/out/back leads back to "+root)
	stagingtest.Must(t, os.Remove(filepath.Join(outside, "back")))
	// the loop's end is not a link itself
	stagingtest.Must(t, os.Symlink("..", filepath.Join(root, "up")))
	_, err = Scan(context.Background(), root, ScanOptions{Group: testGroup(t, 3)})
	stagingtest.WantError(t, err, root+"/up/"+filepath.Base(root)+" leads back to "+root)
	stagingtest.Must(t, os.Remove(filepath.Join(root, "up")))
	stagingtest.Must(t, unix.Mkfifo(filepath.Join(outside, "pipe"), 0o600))
	stagingtest.Grow(t, outside, "d/3")
	m, err := Scan(context.Background(), root, ScanOptions{Group: testGroup(t, 3)})
	stagingtest.Must(t, err)
	if got := fmt.Sprint(samples(m)); got != "[0 a/1 1 out/d/3 2 x/2]" {
		t.Errorf("samples %s", got)
	}
}
