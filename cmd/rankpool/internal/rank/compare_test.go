package rank

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"rankpool/mpicache/transport"
	"rankpool/mpicache/transport/ranks"
	"rankpool/staging/index"
)

// folderSet returns a data set of files below a new folder, as a rank opens it. Each file contains
// its path.
func folderSet(t *testing.T, files ...string) openedSet {
	t.Helper()
	root := t.TempDir()
	for _, name := range files {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(name), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := index.Scan(t.Context(), root, index.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return openedSet{dataSet: dataSet{"train", root}, manifest: m}
}

// compareRanks lets ranks with these data sets compare, and returns each rank's error, "" for none.
func compareRanks(
	t *testing.T, sets [][]openedSet, edit func(rank int, r *process),
) []string {
	t.Helper()
	found := make([]string, len(sets))
	var all sync.WaitGroup
	for rank, transport := range transport.NewLocal(len(sets)) {
		r := &process{
			opt: &Options{Session: t.TempDir()}, transport: ranks.NewMux(transport),
			sets:   sets[rank],
			logger: slog.New(slog.DiscardHandler),
		}
		r.opt.System = System{Name: "rankpool", Policy: "clairvoyant"}
		edit(rank, r)
		all.Go(func() {
			slabs, err := r.compare(t.Context(), r.intro(int64(rank)))
			if err != nil {
				found[rank] = err.Error()
			} else if !slices.Equal(slabs, []int64{0, 1, 2}[:len(sets)]) {
				found[rank] = fmt.Sprint("slabs ", slabs)
			}
			_ = r.transport.Close()
		})
	}
	all.Wait()
	return found
}

// TestRanksCompareData checks that ranks that see different data do not begin, and that the error
// names the ranks and what they see.
func TestRanksCompareData(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	files := []string{"a/1.png", "a/2.png", "b/1.png"}
	sets := func() [][]openedSet {
		return [][]openedSet{
			{folderSet(t, files...)}, {folderSet(t, files...)}, {folderSet(t, files...)},
		}
	}
	same := func(int, *process) {}
	if found := compareRanks(t, sets(), same); strings.Join(found, "") != "" {
		t.Errorf("copies of one data set are refused: %q", found)
	}
	for at := 1; at < 3; at++ {
		sets := sets()
		sets[at] = []openedSet{folderSet(t, "a/1.png", "b/1.png")}
		found := compareRanks(t, sets, same)
		want := fmt.Sprintf("data set train is not the same on all nodes: rank 0 (%s) sees 3 samples "+
			"in %s, and rank %d (%s) 2 samples in %s; to see what differs, run \"rankpool index\" on "+
			"both nodes with the same -o FILE",
			host, sets[0][0].Path, at, host, sets[at][0].Path)
		if found[0] != want || found[1] != "exit code 1" || found[2] != "exit code 1" {
			t.Errorf("the ranks returned %q, rank 0 should return %q", found, want)
		}
	}
}

// TestRanksCompareOptions checks that ranks that were started differently do not begin.
func TestRanksCompareOptions(t *testing.T) {
	set := folderSet(t, "a/1.png")
	other := set
	other.Name = "val"
	for name, c := range map[string]struct {
		edit func(r *process)
		want string
	}{
		"system": {
			func(r *process) { r.opt.System.Assign = "sampler" },
			`was started with --system "rankpool,policy=clairvoyant", rank 1`,
		},
		"name": {
			func(r *process) { r.sets = []openedSet{other} },
			"data set 0 of rank 0",
		},
		"number": {
			func(r *process) { r.sets = append(r.sets, other) },
			"serves 1 data sets, rank 1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := compareRanks(t, [][]openedSet{{set}, {set}},
				func(rank int, r *process) {
					if rank == 1 {
						c.edit(r)
					}
				})
			if !strings.Contains(found[0], c.want) || found[1] != "exit code 1" {
				t.Errorf("the ranks returned %q, want %q", found, c.want)
			}
		})
	}
}

// TestClearedFolders checks that ranks that are started again end if the folder of one was removed,
// and not if one died before it had a folder.
func TestClearedFolders(t *testing.T) {
	set := folderSet(t, "a/1.png")
	for name, c := range map[string]struct {
		again []bool // by rank: its folder is an earlier rank's
		met   bool   // the first had met the others
		ends  bool
	}{
		"first start":         {[]bool{false, false}, false, false},
		"restart":             {[]bool{true, true}, true, false},
		"one has died early":  {[]bool{true, false}, false, false},
		"a folder is cleared": {[]bool{true, false}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			found := compareRanks(t, [][]openedSet{{set}, {set}},
				func(rank int, r *process) {
					r.folder.dir, r.folder.again = t.TempDir(), c.again[rank]
					if c.met && rank == 0 {
						if err := noteMemory(r.folder.dir, 1); err != nil {
							t.Error(err)
						}
					}
				})
			if got := strings.Contains(found[0], "was removed while the run used it"); got != c.ends ||
				!c.ends && strings.Join(found, "") != "" {
				t.Errorf("the ranks returned %q", found)
			}
		})
	}
}
