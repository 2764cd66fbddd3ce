package layout

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"rankpool/scheduler"
)

// SmallFileBytes is the size below which a file counts as small: what sites put on their metadata
// targets.
//
// Source: OLCF, Orion's default layout: the first 256 KiB on the MDT.
const SmallFileBytes = 256 << 10

// A Survey describes how a data set is spread over targets.
type Survey struct {
	// Lustre, BeeGFS, both with " and " between them, or "" without layouts
	FileSystem string
	Files      int64    // of the data set; 0 if the file system has no layouts
	Bytes      int64    // of all samples
	Groups     []Group  // in order of files, most first
	Pools      []string // OST pools, in order of name
	Loads      []Load   // the numbered targets that hold samples, in order of number
	Known      int      // targets of the file system; 0: unknown
	OnMDT      Load     // what is on metadata targets
	Unplaced   Load     // what has no known target: released, stubs, no layout
	// files of less than SmallFileBytes, not empty, that start on a numbered target
	SmallOnOST int64
	SmallWide  int64 // files of less than a stripe with more than one target
	Released   int64 // files whose content is only in the archive
	Stubs      int64 // files whose content is only on a remote storage target
	Unread     int64 // files whose layout could not be read
	Problem    error // why the first of these could not be read
}

// A Group is the files with the same kind of layout and number of targets.
type Group struct {
	FileSystem string
	Kind       Kind
	Stripes    int // targets per file
	Files      int64
}

// A Load is the part of a data set on one target.
type Load struct {
	Target int
	Files  int64 // files with bytes on it
	Bytes  int64
}

// Take reads the layouts of all files of a data set and adds them up. root is a folder of the data
// set, whose file system determines the number of targets. Files is 0 if the file system has no
// layouts, by the test that Build uses.
//
// Errors: ctx's end, as its cause.
func Take(ctx context.Context, root string, samples Samples, opt Options) (*Survey, error) {
	return take(ctx, systemCalls{}, root, samples, opt)
}

func take(ctx context.Context, sys system, root string, samples Samples, opt Options) (
	*Survey, error,
) {
	t := &taking{survey: &Survey{}, samples: samples, groups: map[Group]int64{}, loads: map[int]Load{}}
	found, err := walkFiles(ctx, sys, samples, opt, t.add)
	if err != nil || !found {
		return &Survey{}, err
	}
	t.finish()
	if t.survey.FileSystem == Lustre {
		t.survey.Known = targetCount(sys, root)
	}
	return t.survey, nil
}

// MaxOverMean returns the load of the fullest of the numbered targets in use divided by their mean;
// 0 if there are none.
func (s *Survey) MaxOverMean() float64 {
	var most, sum int64
	for _, load := range s.Loads {
		most = max(most, load.Bytes)
		sum += load.Bytes
	}
	if sum == 0 {
		return 0
	}
	return float64(most) * float64(len(s.Loads)) / float64(sum)
}

// A taking is a Survey in progress.
type taking struct {
	samples Samples

	mu           sync.Mutex
	survey       *Survey
	groups       map[Group]int64 // files, by Group without Files
	loads        map[int]Load
	firstProblem scheduler.SampleID // the sample of survey.Problem
}

func (t *taking) add(f file) {
	var end, sizeBytes int64
	on := map[int]int64{}
	for id := f.first; id < f.end; id++ {
		offset, size := t.samples.Offset(id), t.samples.Size(id)
		end = max(end, offset+size)
		sizeBytes += size
		f.layout.BytesOn(offset, size, func(target int, held int64) { on[target] += held })
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for target, held := range on {
		load := t.loads[target]
		t.loads[target] = Load{target, load.Files + 1, load.Bytes + held}
	}
	s := t.survey
	s.Files++
	s.Bytes += sizeBytes
	if f.err != nil {
		if s.Problem == nil || f.first < t.firstProblem {
			s.Problem, t.firstProblem = f.err, f.first
		}
		s.Unread++
	}
	t.count(f.layout, end)
}

// count adds a file of at least end bytes to the groups and to the numbers for hints.
func (t *taking) count(l Layout, end int64) {
	s := t.survey
	t.groups[Group{FileSystem: l.FileSystem, Kind: l.Kind, Stripes: len(l.Targets())}]++
	if l.Pool != "" && !slices.Contains(s.Pools, l.Pool) {
		s.Pools = append(s.Pools, l.Pool)
	}
	if l.Released {
		s.Released++
	}
	if l.Stub {
		s.Stubs++
	}
	if end == 0 || l.TargetAt(0) < 0 {
		return
	}
	if end < SmallFileBytes {
		s.SmallOnOST++
	}
	if end <= l.StripeBytes(0) && len(l.Components[0].Targets) > 1 {
		s.SmallWide++
	}
}

func (t *taking) finish() {
	s := t.survey
	s.OnMDT, s.Unplaced = t.loads[MDT], t.loads[NoTarget]
	for _, target := range slices.Sorted(maps.Keys(t.loads)) {
		if target >= 0 {
			s.Loads = append(s.Loads, t.loads[target])
		}
	}
	var names []string
	for group, files := range t.groups {
		group.Files = files
		s.Groups = append(s.Groups, group)
		if group.FileSystem != "" && !slices.Contains(names, group.FileSystem) {
			names = append(names, group.FileSystem)
		}
	}
	slices.SortFunc(s.Groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Files, a.Files), cmp.Compare(a.FileSystem, b.FileSystem),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Stripes, b.Stripes))
	})
	slices.Sort(s.Pools)
	slices.Sort(names)
	s.FileSystem = strings.Join(names, " and ")
}

// TargetName returns the name of a target in its file system's terms.
func TargetName(fileSystem string, target int) string {
	switch {
	case target == MDT:
		return "MDT"
	case target < 0:
		return "none"
	case fileSystem == Lustre:
		return fmt.Sprintf("OST%04x", target)
	}
	return fmt.Sprintf("target %d", target)
}
