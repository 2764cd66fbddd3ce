package pack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// journalName is the file that lists the finished shards of a pack. It begins with a dot, so that
// it is not a sample.
const journalName = ".rankpool-pack"

// A journal is lines of JSON: the plan's identity, then a record for each finished shard. An
// incomplete line at its end, from a run that was killed, is ignored. A shard is trusted only after
// it has been read.
type journal struct {
	file *os.File
	sums map[int][]uint64 // per shard
}

// A record is a shard and the checksums of its samples.
type record struct {
	Shard int
	Sums  []uint64
}

// openJournal opens or creates the journal of p in the folder dest, which it creates too, and locks
// it against other packers. begun reports whether there was one.
//
// Errors: another pack's journal, one that is in use, a *posix.DestinationError.
func openJournal(dest string, p *Plan) (j *journal, begun bool, err error) {
	if err := os.MkdirAll(dest, 0o755); err != nil {
		return nil, false, cannotWrite(dest, err)
	}
	file, err := os.OpenFile(filepath.Join(dest, journalName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, cannotWrite(dest, err)
	}
	defer func() {
		if err != nil {
			_ = file.Close() // err is being reported
		}
	}()
	// Without locks, pack anyway.
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return nil, false, fmt.Errorf("pack: another rankpool pack writes to %s", dest)
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, false, cannotWrite(dest, err)
	}
	sums, good, err := parseJournal(data, p)
	if err != nil {
		return nil, false, fmt.Errorf("pack: %s holds %w: name another folder, or remove that one", dest,
			err)
	}
	j = &journal{file, sums}
	if err := j.cut(good); err != nil {
		return nil, false, cannotWrite(dest, err)
	}
	return j, good > 0, nil
}

// cut removes everything after the valid part of the journal, so that writing continues there.
func (j *journal) cut(good int) error {
	if err := j.file.Truncate(int64(good)); err != nil {
		return err
	}
	_, err := j.file.Seek(int64(good), io.SeekStart)
	return err
}

// begin writes the header of a new journal.
func (j *journal) begin(p *Plan) error {
	_, err := j.file.Write(p.journalHead())
	return err
}

func (p *Plan) journalHead() []byte { return fmt.Appendf(nil, "{\"Pack\":\"%x\"}\n", p.identity()) }

// add records that a shard is finished.
func (j *journal) add(shard int, sums []uint64) error {
	return json.NewEncoder(j.file).Encode(record{shard, sums})
}

var errOtherPack = errors.New("another pack (of other data, or data that has changed since, or " +
	"in another order or shard size)")

// parseJournal returns the checksums of the shards in a journal of p, and the length of its valid
// part.
func parseJournal(data []byte, p *Plan) (sums map[int][]uint64, good int, err error) {
	sums = map[int][]uint64{}
	head := p.journalHead()
	if bytes.HasPrefix(head, data) && len(data) < len(head) {
		return sums, 0, nil // the run was killed before it packed anything
	}
	if !bytes.HasPrefix(data, head) {
		return nil, 0, errOtherPack
	}
	good = len(head)
	for line := range bytes.Lines(data[good:]) {
		var r record
		if line[len(line)-1] != '\n' || json.Unmarshal(line, &r) != nil ||
			r.Shard < 0 || r.Shard >= p.Shards() {
			break
		}
		if from, to := p.span(r.Shard); to-from != len(r.Sums) {
			break
		}
		sums[r.Shard] = r.Sums
		good += len(line)
	}
	return sums, good, nil
}
