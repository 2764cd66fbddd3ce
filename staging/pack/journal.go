package pack

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"
)

// journalName is the file that lists the finished shards of a pack. It begins with a dot, so that
// it is not a sample.
const journalName = ".rankpool-pack"

// A journal is a header, the plan's identity (16 bytes), and a record per shard: its number (u32),
// the number of its samples (u32), their checksums (u64 each), and the record's XXH3 (u64); all
// little-endian. An incomplete record at its end, from a run that was killed, is ignored. A shard
// is trusted only after it has been read.
const journalHead = "rankpool pack 1\n"

type journal struct {
	file *os.File
	sums map[int][]uint64 // per shard
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

func (p *Plan) journalHead() []byte {
	identity := p.identity()
	return append([]byte(journalHead), identity[:]...)
}

// add records that a shard is finished. The record is one write, so that a killed run leaves it
// complete or not at all.
func (j *journal) add(shard int, sums []uint64) error {
	record := binary.LittleEndian.AppendUint32(nil, uint32(shard))
	record = binary.LittleEndian.AppendUint32(record, uint32(len(sums)))
	for _, sum := range sums {
		record = binary.LittleEndian.AppendUint64(record, sum)
	}
	_, err := j.file.Write(binary.LittleEndian.AppendUint64(record, xxh3.Hash(record)))
	return err
}

var errOtherPack = errors.New("another pack (of other data, or data that has changed since, or " +
	"in another order or shard size)")

// parseJournal returns the checksums of the shards in a journal of p, and the length of its valid
// part.
func parseJournal(data []byte, p *Plan) (sums map[int][]uint64, good int, err error) {
	sums = map[int][]uint64{}
	head := p.journalHead()
	if begun := data[:min(len(data), len(journalHead))]; len(data) < len(head) &&
		bytes.HasPrefix(head, begun) {
		return sums, 0, nil // the run was killed before it packed anything
	}
	if !bytes.HasPrefix(data, head) {
		return nil, 0, errOtherPack
	}
	good = len(head)
	for rest := data[good:]; len(rest) >= 16; rest = data[good:] {
		shard, count := binary.LittleEndian.Uint32(rest), int64(binary.LittleEndian.Uint32(rest[4:]))
		length := 8 + 8*count
		if length+8 > int64(len(rest)) || int(shard) >= p.Shards() ||
			xxh3.Hash(rest[:length]) != binary.LittleEndian.Uint64(rest[length:]) {
			break
		}
		from, to := p.span(int(shard))
		if int64(to-from) != count {
			break
		}
		list := make([]uint64, count)
		for i := range list {
			list[i] = binary.LittleEndian.Uint64(rest[8+8*i:])
		}
		sums[int(shard)] = list
		good += int(length) + 8
	}
	return sums, good, nil
}
