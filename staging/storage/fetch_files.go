package storage

import (
	"slices"
	"time"
)

const (
	// maxIdleFiles bounds the files that a Fetcher keeps open for the next read; a process may have
	// 1,024 open.
	maxIdleFiles = 32

	// idleTime is how long a file stays open without a read. Chosen: the next samples of a shard come
	// within seconds or not before the next epoch.
	idleTime = 5 * time.Second
)

// idleFiles are open shard files not in use, least recently used first. A shard that several
// requests read at a time is open several times: an open file has one user.
type idleFiles struct{ files []idleFile }

type idleFile struct {
	path  string // the shard's
	file  File
	since time.Time
}

// take returns an open file of a shard, for the caller to use and then put or close; nil if there
// is none.
func (s *idleFiles) take(from *shard) File {
	for i, idle := range slices.Backward(s.files) {
		if idle.path == from.path {
			s.files = slices.Delete(s.files, i, i+1)
			return idle.file
		}
	}
	return nil
}

// put keeps a file open.
func (s *idleFiles) put(of *shard, file File, now time.Time) {
	s.files = append(s.files, idleFile{of.path, file, now})
}

// takeOld removes and returns the files beyond maxIdleFiles, and those that were idle for too long;
// the caller closes them.
func (s *idleFiles) takeOld(now time.Time) []idleFile {
	n := max(0, len(s.files)-maxIdleFiles)
	for n < len(s.files) && now.Sub(s.files[n].since) >= idleTime {
		n++
	}
	old := slices.Clone(s.files[:n])
	s.files = slices.Delete(s.files, 0, n)
	return old
}

func closeFiles(files []idleFile) {
	for _, f := range files {
		_ = f.file.Close() // it was only read
	}
}

// keepOpen keeps a file for the next read; it returns false if the Fetcher is closed.
func (f *Fetcher) keepOpen(of *shard, file File) bool {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return false
	}
	now := time.Now()
	f.idle.put(of, file, now)
	old := f.idle.takeOld(now)
	f.startWatchdog()
	f.mu.Unlock()
	closeFiles(old)
	return true
}
