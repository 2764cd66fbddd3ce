package stage

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A record describes a copy and its origin.
type record struct {
	sum           uint64 // XXH3 of 64 bits, without seed
	size, modTime int64  // of the source
	inode         uint64 // of the source; its device is another number on every client
	placed        int64  // modification time of the copy in its file system
	copied        uint64 // inode of the copy
	source        string // path of the source
}

func recordOf(plan *Plan, item *Item, sum uint64, copied info) record {
	return record{
		sum, item.Size, item.ModTime, item.Inode, copied.modTime, copied.inode,
		join(plan.Root, item.Path),
	}
}

// isOf reports whether r is of the copy that i describes.
func (r record) isOf(i info) bool {
	return i.kind == Regular && r.size == i.size && r.placed == i.modTime && r.copied == i.inode
}

// quote returns a text as one word of ASCII.
func quote(text string) string {
	return strings.ReplaceAll(strconv.QuoteToASCII(text), " ", `\x20`)
}

// line returns the line of a journal for the copy at rel.
func (r record) line(rel string) string {
	return fmt.Sprintf("%016x %d %d %d %d %d %s %s\n", r.sum, r.size, r.modTime, r.inode, r.placed,
		r.copied, quote(rel), quote(r.source))
}

// parseLine parses what line returns.
func parseLine(line string) (rel string, r record, ok bool) {
	words := strings.Split(line, " ")
	if len(words) != 8 || len(words[0]) != 16 {
		return "", record{}, false
	}
	var err error
	signed := func(text string) int64 {
		n, bad := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	unsigned := func(text string, base int) uint64 {
		n, bad := strconv.ParseUint(text, base, 64)
		err = errors.Join(err, bad)
		return n
	}
	unquoted := func(text string) string {
		text, bad := strconv.Unquote(text)
		err = errors.Join(err, bad)
		return text
	}
	rel = unquoted(words[6])
	r = record{
		unsigned(words[0], 16), signed(words[1]), signed(words[2]), unsigned(words[3], 10),
		signed(words[4]), unsigned(words[5], 10), unquoted(words[7]),
	}
	return rel, r, err == nil
}

// A journal holds the records of a destination: lines appended to a file of each rank, before the
// copy gets its name. The record of a copy that never got it is of an inode that is gone. A journal
// is safe for concurrent use.
type journal struct {
	tree    *tree
	name    string // of this rank's file
	mu      sync.Mutex
	records map[string][]record // by path
	file    *file               // nil until there is something to write
	end     int64               // of file
}

const journalSuffix = ".journal"

// readJournal reads what all ranks have written at a destination; the first time there is nothing.
func readJournal(t *tree, rank int) *journal {
	j := &journal{
		tree: t, name: statePrefix + strconv.Itoa(rank) + journalSuffix,
		records: map[string][]record{},
	}
	names, err := t.names("")
	if err != nil {
		return j
	}
	for _, name := range names {
		if !isOurs(name) || !strings.HasSuffix(name, journalSuffix) {
			continue
		}
		for line := range bytes.Lines(t.content(name)) {
			// Damaged lines are left out, such as the last of a run that was killed.
			if rel, r, ok := parseLine(strings.TrimSuffix(string(line), "\n")); ok {
				j.records[rel] = append(j.records[rel], r)
			}
		}
	}
	return j
}

// find returns the record of the copy at rel that i describes.
func (j *journal) find(rel string, i info) (record, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records[rel] {
		if r.isOf(i) {
			return r, true
		}
	}
	return record{}, false
}

// add appends a record.
func (j *journal) add(rel string, r record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records[rel] = append(j.records[rel], r)
	line := r.line(rel)
	if j.file == nil {
		file, end, err := j.tree.appendTo(j.name)
		if err != nil {
			return err
		}
		j.file, j.end = file, end
		line = "\n" + line // ends a line that a killed run began
	}
	err := j.file.writeAt([]byte(line), j.end)
	j.end += int64(len(line))
	return err
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.close()
}
