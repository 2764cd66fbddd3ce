package slowfs

import (
	"cmp"
	"slices"
	"time"
)

// Stats are counts since the start or the last ResetStats. An access counts when it arrives, even
// if it fails later; bytes are those of reads that do not fail.
type Stats struct {
	Opens   int64 `json:"opens"`
	Reads   int64 `json:"reads"`   // of at least one byte, including failed ones
	Bytes   int64 `json:"bytes"`   // read
	Twice   int64 `json:"twice"`   // bytes among these that had been read before
	Entries int64 `json:"entries"` // of folders, listed
	Stats   int64 `json:"stats"`   // lookups of names and attributes
	Errors  int64 `json:"errors"`  // made by rules
	Stalls  int64 `json:"stalls"`  // made by rules

	FirstRead   time.Duration `json:"first_read_ns"` // when the first read arrived, since the start
	LastRead    time.Duration `json:"last_read_ns"`  // when the last one was due
	TargetBytes []int64       `json:"target_bytes"`  // read, by target

	// Files has the counts of each file that was opened or read, by its path below the root.
	Files map[string]FileStats `json:"files"`
}

// FileStats are the counts of one file, as in Stats.
type FileStats struct {
	Opens int64 `json:"opens"`
	Reads int64 `json:"reads"`
	Bytes int64 `json:"bytes"`
	Twice int64 `json:"twice"`
}

// Stats returns a copy of the counts.
func (e *Engine) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.count
	s.TargetBytes = slices.Clone(s.TargetBytes)
	s.Files = make(map[string]FileStats, len(e.files))
	for path, f := range e.files {
		s.Files[path] = f.FileStats
	}
	return s
}

// ResetStats sets all counts to 0. It does not affect rules and pipes.
func (e *Engine) ResetStats() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resetCounters()
}

func (e *Engine) resetCounters() {
	e.count = Stats{TargetBytes: make([]int64, len(e.targets))}
	e.files = make(map[string]*fileCount)
}

// ReadTwice returns the paths of the files with bytes that were read more than once, sorted.
func (s Stats) ReadTwice() []string {
	var paths []string
	for path, f := range s.Files {
		if f.Twice > 0 {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// fileCount holds the counts of one file, and which of its bytes were read.
type fileCount struct {
	FileStats
	read spans
}

// file returns the counts of a file. e.mu must be held.
func (e *Engine) file(path string) *fileCount {
	f, ok := e.files[path]
	if !ok {
		f = &fileCount{}
		e.files[path] = f
	}
	return f
}

// countRead counts a read. e.mu must be held.
func (e *Engine) countRead(now time.Duration, path string, offset, sizeBytes int64, pieces []piece,
	failed bool,
) {
	f := e.file(path)
	if e.count.Reads == 0 {
		e.count.FirstRead = now
	}
	e.count.Reads++
	f.Reads++
	if failed {
		return
	}
	twice := f.read.add(offset, offset+sizeBytes)
	f.Bytes += sizeBytes
	f.Twice += twice
	e.count.Bytes += sizeBytes
	e.count.Twice += twice
	for _, p := range pieces {
		e.count.TargetBytes[p.target] += p.sizeBytes
	}
}

// spans is a set of bytes: half-open intervals that neither overlap nor touch, in ascending order.
type spans []span

type span struct{ begin, end int64 }

// add adds [begin, end) to the set and returns how many of its bytes were in it.
func (s *spans) add(begin, end int64) (known int64) {
	// [first, last) are those that overlap or touch the new one.
	first, _ := slices.BinarySearchFunc(*s, begin,
		func(have span, begin int64) int { return cmp.Compare(have.end, begin) })
	last := first
	merged := span{begin, end}
	for ; last < len(*s) && (*s)[last].begin <= end; last++ {
		have := (*s)[last]
		known += max(0, min(have.end, end)-max(have.begin, begin))
		merged = span{min(merged.begin, have.begin), max(merged.end, have.end)}
	}
	*s = slices.Replace(*s, first, last, merged)
	return known
}
