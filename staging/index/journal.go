package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"rankpool/scheduler"
	"rankpool/staging/dataset"
	"rankpool/staging/posix"
)

// A Journal records in a file what an indexing run has found so far, every folder's listing and
// every checksum, so that an interrupted run can resume. Each record is written at once, so a
// killed process loses none. A nil Journal records nothing. All methods are safe for concurrent
// use.
type Journal struct {
	file *os.File

	mu      sync.Mutex
	record  []byte
	folders map[string]*listing  // listings of earlier runs, by path
	sums    map[sumKey]sumRecord // checksums of earlier runs
}

// A sumKey names the sample of a checksum, a sumRecord the version of its file.
type (
	sumKey struct {
		path   string // relative to the root
		offset int64
	}
	sumRecord struct {
		size, modTime int64
		sum           uint64
	}
)

// The file starts with the magic, the length of the rest of its header (u32), a byte that is 1 for
// ScanOptions.Sync, and the root. Each record is its length (u32), its XXH3 hash (u64), its kind (a
// byte), and data. All integers are little-endian.
const (
	journalMagic  = "rpjourn1"
	journalFolder = 'f' // the length of the path (varint), the path, the listing
	// the length of the path (varint), the path, offset, size, modification time (varints), sum.
	journalSum        = 's'
	journalRecordHead = 4 + 8
)

// OpenJournal opens or creates, in the file path, the journal of a run that indexes the folder
// root, an absolute path, and reads its records. It drops records of another root or another Sync,
// and what a crash of the machine left incomplete or damaged. The caller closes it, and removes it
// when the index is complete.
//
// Errors: the file cannot be read or written; another process writes to it.
func OpenJournal(path, root string, sync bool) (*Journal, error) {
	fail := func(err error) (*Journal, error) { return nil, fmt.Errorf("staging: journal: %w", err) }
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fail(err)
	}
	j := &Journal{file: file, folders: map[string]*listing{}, sums: map[sumKey]sumRecord{}}
	err = posix.Retry(func() error { return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another index writes to %s: wait until it has ended", path)
		// Lustre mounted without locks
	} else if err == nil || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		err = j.load(root, sync)
	}
	if err != nil {
		file.Close()
		return fail(err)
	}
	return j, nil
}

// load reads the records up to the first incomplete one, and truncates the file there.
func (j *Journal) load(root string, sync bool) error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return err
	}
	head := journalHead(root, sync)
	end := 0
	if len(data) >= len(head) && string(data[:len(head)]) == string(head) {
		end = len(head) + j.parse(data[len(head):])
	}
	if end < len(data) {
		if err := j.file.Truncate(int64(end)); err != nil {
			return err
		}
	}
	if end == 0 {
		_, err = j.file.Write(head)
	}
	return err
}

func journalHead(root string, sync bool) []byte {
	head := binary.LittleEndian.AppendUint32([]byte(journalMagic), uint32(1+len(root)))
	mark := byte(0)
	if sync {
		mark = 1
	}
	return append(append(head, mark), root...)
}

// parse reads records and returns where the first incomplete one starts.
func (j *Journal) parse(data []byte) (end int) {
	for {
		rest := data[end:]
		if len(rest) <= journalRecordHead {
			return end
		}
		size := uint64(binary.LittleEndian.Uint32(rest))
		if size == 0 || size > uint64(len(rest)-journalRecordHead) {
			return end
		}
		record := rest[journalRecordHead : journalRecordHead+size]
		if xxh3.Hash(record) != binary.LittleEndian.Uint64(rest[4:]) || !j.take(record) {
			return end
		}
		end += journalRecordHead + int(size)
	}
}

// take parses one record; it returns false if the record is invalid.
func (j *Journal) take(record []byte) bool {
	in := varints{rest: record[1:]}
	path := in.text()
	if in.bad || dataset.CheckFolder(path) != nil {
		return false
	}
	switch record[0] {
	case journalFolder:
		l, err := parseListing(in.rest)
		if err != nil {
			return false
		}
		j.folders[path] = l
		return true
	case journalSum:
		key, sum := sumKey{path, in.signed()}, sumRecord{in.signed(), in.signed(), in.unsigned()}
		if in.bad {
			return false
		}
		j.sums[key] = sum
		return true
	}
	return false
}

// listings returns the listings of earlier runs by path.
func (j *Journal) listings() map[string]*listing {
	if j == nil {
		return nil
	}
	return j.folders
}

// keep writes a folder's listing.
func (j *Journal) keep(path string, l *listing) error {
	if j == nil {
		return nil
	}
	return j.write(journalFolder, path, l.append)
}

// sum returns the checksum of sample id of m, if an earlier run recorded it.
func (j *Journal) sum(m *dataset.Manifest, id scheduler.SampleID) (uint64, bool) {
	if j == nil {
		return 0, false
	}
	known, found := j.sums[sumKey{m.RelPath(id), m.Offset(id)}]
	return known.sum, found && known.size == m.Size(id) && known.modTime == m.ModTime(id)
}

// keepSum writes the checksum of sample id of m.
func (j *Journal) keepSum(m *dataset.Manifest, id scheduler.SampleID, sum uint64) error {
	if j == nil {
		return nil
	}
	return j.write(journalSum, m.RelPath(id), func(data []byte) []byte {
		for _, n := range []int64{m.Offset(id), m.Size(id), m.ModTime(id)} {
			data = binary.AppendVarint(data, n)
		}
		return binary.AppendUvarint(data, sum)
	})
}

// write appends a record with one system call.
func (j *Journal) write(kind byte, path string, data func([]byte) []byte) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	record := append(j.record[:0], make([]byte, journalRecordHead)...)
	record = data(appendText(append(record, kind), path))
	body := record[journalRecordHead:]
	if uint64(len(body)) > 1<<32-1 {
		return nil // a folder of a hundred million files is listed again
	}
	binary.LittleEndian.PutUint32(record, uint32(len(body)))
	binary.LittleEndian.PutUint64(record[4:], xxh3.Hash(body))
	j.record = record
	if _, err := j.file.Write(record); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Found returns how many listings and checksums earlier runs recorded.
func (j *Journal) Found() (folders, checksums int) { return len(j.folders), len(j.sums) }

// Close closes the file, and keeps it for the next run.
func (j *Journal) Close() error { return j.file.Close() }

// Remove closes and removes the file: the index is complete.
func (j *Journal) Remove() error {
	return errors.Join(os.Remove(j.file.Name()), j.file.Close())
}
