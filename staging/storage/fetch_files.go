package storage

import "time"

// maxOpenFiles bounds the shards that a Fetcher keeps open beside those that it reads at the
// moment; a process may have 1,024 files open.
const maxOpenFiles = 256

// openFiles are the shards that a Fetcher has open, by path: each once, for all requests that read
// it, and then until it is the one that was not read for longest.
type openFiles map[string]*openFile

// An openFile is a file that requests share; the Fetcher's lock guards users and used.
type openFile struct {
	opened chan struct{} // closed when file and err are set
	file   File
	err    error
	users  int       // requests
	used   time.Time // when the last of them began
}

// take returns the file of a shard for a request, which must leave it, and whether the request must
// open it. A file that is not a shard (nil) is opened for each request.
func (s openFiles) take(of *shard, now time.Time) (file *openFile, opens bool) {
	if of != nil {
		file = s[of.path]
	}
	if file == nil {
		file, opens = &openFile{opened: make(chan struct{})}, true
		if of != nil {
			s[of.path] = file
		}
	}
	file.users, file.used = file.users+1, now
	return file, opens
}

// leave undoes take; a broken file is not used again. It returns a file to close, or nil.
func (s openFiles) leave(of *shard, file *openFile, broken bool) *openFile {
	file.users--
	kept := of != nil && s[of.path] == file
	if kept && broken {
		delete(s, of.path)
		kept = false
	}
	switch {
	case !kept && file.users == 0:
		return file
	case !kept || len(s) <= maxOpenFiles:
		return nil
	}
	oldest := ""
	for path, other := range s {
		if other.users == 0 && (oldest == "" || other.used.Before(s[oldest].used)) {
			oldest = path
		}
	}
	file = s[oldest]
	delete(s, oldest)
	return file
}

// leaveFile ends a flight's use of its file.
func (f *Fetcher) leaveFile(fl *flight, broken bool) {
	f.mu.Lock()
	old := f.open.leave(fl.reads[0].shard, fl.file, broken || f.closed)
	f.mu.Unlock()
	old.close()
}

// close closes the file, if it could be opened; nil is none.
func (o *openFile) close() {
	if o != nil && o.file != nil {
		_ = o.file.Close() // it was only read
	}
}
