package storage

import "time"

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
	for i := len(s.files) - 1; i >= 0; i-- {
		if s.files[i].path == from.path {
			file := s.files[i].file
			s.files = append(s.files[:i], s.files[i+1:]...)
			return file
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
	return s.cut(n)
}

// takeAll removes and returns all files; the caller closes them.
func (s *idleFiles) takeAll() []idleFile { return s.cut(len(s.files)) }

// cut removes the first n files.
func (s *idleFiles) cut(n int) []idleFile {
	if n == 0 {
		return nil
	}
	old := append([]idleFile(nil), s.files[:n]...)
	s.files = append(s.files[:0], s.files[n:]...)
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
