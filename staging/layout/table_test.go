package layout

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"rankpool/scheduler/draw"
	"rankpool/staging/posix"
)

// mixed is a data set on Lustre: shards of several samples, small files, DoM, released, unreadable
// and lost ones.
func mixed(t testing.TB) (*fakeSystem, dataSet) {
	sys := newFake(map[string]fakeFile{
		"/d":       {magic: posix.LustreMagic},
		"/d/shard": lustreFile(3, 4),
		"/d/small": lustreFile(5),
		"/d/dom":   {magic: posix.LustreMagic, value: golden(t, "dom")},
		"/d/tape":  released(),
		"/d/bad":   {magic: posix.LustreMagic, value: []byte("bad value")},
		"/d/empty": {magic: posix.LustreMagic},
		"/d/large": lustreFile(3, 4),
	})
	return sys, dataSet{
		{"/d/shard", 0, 1 << 20},
		{"/d/shard", 1 << 20, 1 << 20},
		{"/d/shard", 2 << 20, 10},
		{"/d/small", 0, 100},
		{"/d/dom", 0, 1 << 20},
		{"/d/tape", 0, 5},
		{"/d/bad", 0, 5},
		{"/d/lost", 0, 5},
		{"/d/empty", 0, 0},
		{"/d/tape", 0, 5},
		{"/d/large", 0, 3 << 20},
	}
}

func TestBuild(t *testing.T) {
	sys, data := mixed(t)
	table := build(context.Background(), sys, data)
	var targets []int
	for id := range data.Len() {
		targets = append(targets, table.TargetOf(draw.SampleID(id)))
	}
	if want := []int{
		3, 4, 3, 5, NoTarget, NoTarget, NoTarget, NoTarget, NoTarget, NoTarget,
		3,
	}; !slices.Equal(targets, want) {
		t.Errorf("targets %v, want %v", targets, want)
	}
	if want := []draw.SampleID{5, 9}; !slices.Equal(table.Offline(), want) {
		t.Errorf("offline %v, want %v", table.Offline(), want)
	}
}

// Each file's layout is read once, however many samples and chunks it has, apart from the reads of
// the spread.
func TestBuildLooksOnceAFile(t *testing.T) {
	const samples, inA = 5000, 1000
	sys := newFake(map[string]fakeFile{"/a": lustreFile(1), "/b": lustreFile(2)})
	var data dataSet
	for i := range samples {
		path := "/a"
		if i >= inA {
			path = "/b"
		}
		data = append(data, sample{path, int64(i), 1})
	}
	table := build(context.Background(), sys, data)
	if sys.calls["getxattr /a"]+sys.calls["getxattr /b"] != spread+2 {
		t.Errorf("calls: %v", sys.calls)
	}
	for i, want := range map[draw.SampleID]int{0: 1, inA - 1: 1, inA: 2, samples - 1: 2} {
		if got := table.TargetOf(i); got != want {
			t.Errorf("sample %d is on %d, want %d", i, got, want)
		}
	}
}

func TestBuildOnBeeGFS(t *testing.T) {
	sys := newFake(map[string]fakeFile{
		"/1": beegfsFile(7, 8), "/2": {magic: posix.BeeGFSMagic, openErr: unix.EWOULDBLOCK},
		"/3": {magic: unix.TMPFS_MAGIC},
	})
	data := dataSet{{"/1", 0, 1 << 20}, {"/1", 1 << 19, 3}, {"/2", 0, 10}, {"/3", 0, 10}}
	table := build(context.Background(), sys, data)
	if got := []int{
		table.TargetOf(0), table.TargetOf(1), table.TargetOf(2),
		table.TargetOf(3),
	}; !slices.Equal(got, []int{7, 8, NoTarget, NoTarget}) {
		t.Errorf("targets %v", got)
	}
	if !slices.Equal(table.Offline(), []draw.SampleID{2}) || sys.opened != 0 {
		t.Errorf("offline %v, %d open", table.Offline(), sys.opened)
	}
	// statfs is a request to the servers: it is called for the spread, and not again for the files.
	if sys.calls["statfs"] > 2*data.Len() {
		t.Errorf("calls: %v", sys.calls)
	}
}

// A file system in between, such as FUSE or an overlay, may pass Lustre's attribute on.
func TestBuildThroughAnotherFileSystem(t *testing.T) {
	passed := lustreFile(9)
	passed.magic = unix.FUSE_SUPER_MAGIC
	table := build(context.Background(), newFake(map[string]fakeFile{"/f": passed}),
		dataSet{{"/f", 0, 1}})
	if table.TargetOf(0) != 9 {
		t.Errorf("target %d", table.TargetOf(0))
	}
}

func TestBuildWithoutLayout(t *testing.T) {
	sys := newFake(map[string]fakeFile{"/f": {magic: unix.TMPFS_MAGIC}})
	var data dataSet
	for range 10000 {
		data = append(data, sample{"/f", 0, 1})
	}
	table := build(context.Background(), sys, data)
	if table != nil {
		t.Errorf("%v", table)
	}
	if sys.calls["getxattr /f"] != spread {
		t.Errorf("%d files were asked, want %d", sys.calls["getxattr /f"], spread)
	}
	if table := build(context.Background(), sys, dataSet{}); table != nil {
		t.Errorf("no samples: %v", table)
	}
	// A nil table answers.
	if table.TargetOf(1) != NoTarget || table.Offline() != nil {
		t.Error("a nil table says something")
	}
}

func TestBuildEnds(t *testing.T) {
	sys, data := mixed(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if table := build(ctx, sys, data); table != nil {
		t.Errorf("%v", table)
	}
}

// Each sample's target is that of its file examined alone.
func TestBuildIsThatOfEachFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		files := map[string]fakeFile{}
		var data dataSet
		for i := range rapid.IntRange(1, 30).Draw(t, "files") {
			path := fmt.Sprintf("/%d", i)
			targets := rapid.SliceOfN(rapid.Uint32Range(0, 5), 1, 3).Draw(t, "targets")
			files[path] = lustreFile(targets...)
			for range rapid.SampledFrom([]int{1, 1, 2, 700}).Draw(t, "samples") {
				data = append(data, sample{path, rapid.Int64Range(0, 4<<20).Draw(t, "offset"), 10})
			}
		}
		table := build(context.Background(), newFake(files), data)
		for i, s := range data {
			l, err := parseLustre(files[s.path].value)
			if err != nil {
				t.Fatal(err)
			}
			if got := table.TargetOf(draw.SampleID(i)); got != l.TargetAt(s.offset) {
				t.Fatalf("sample %d is on %d, its file says %d", i, got, l.TargetAt(s.offset))
			}
		}
	})
}
