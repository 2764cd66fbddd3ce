package stage

import (
	"bytes"
	"encoding/json"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A record describes a copy and its origin.
type record struct {
	Sum           uint64 // XXH3 of 64 bits, without seed
	Size, ModTime int64  // of the source
	Inode         uint64 // of the source; its device is another number on every client
	Placed        int64  // modification time of the copy in its file system
	Copied        uint64 // inode of the copy
	Source        string // path of the source, quoted
}

func recordOf(plan *Plan, item *Item, sum uint64, copied Info) record {
	return record{
		sum, item.Size, item.ModTime, item.Inode, copied.ModTime, copied.Inode,
		plan.source(item.Path),
	}
}

// source returns the path of a file of the source, quoted.
func (p *Plan) source(rel string) string { return strconv.QuoteToASCII(path.Join(p.Root, rel)) }

// isOf reports whether r is of the copy that i describes.
func (r record) isOf(i Info) bool {
	return i.Kind == Regular && r.Size == i.Size && r.Placed == i.ModTime && r.Copied == i.Inode
}

// A line is a line of a journal, in JSON.
type line struct {
	Path []byte // of the copy; JSON's strings know Unicode only
	record
}

// A journal holds the records of a destination: lines appended to a file of each rank, before the
// copy gets its name. The record of a copy that never got it is of an inode that is gone. A journal
// is safe for concurrent use.
type journal struct {
	tree    *tree
	name    string // of this rank's file
	mu      sync.Mutex
	records map[string][]record // of earlier runs, by path
	file    *file               // nil until there is something to write
}

const journalSuffix = ".journal"

// readJournal reads what all ranks have written at a destination; the first time there is nothing.
func readJournal(t *tree, rank int) *journal {
	j := &journal{
		tree: t, name: statePrefix + strconv.Itoa(rank) + journalSuffix,
		records: map[string][]record{},
	}
	names, _ := t.names("") // nothing is there yet, or writing fails, too
	for _, name := range names {
		if !isOurs(name) || !strings.HasSuffix(name, journalSuffix) {
			continue
		}
		text, _ := os.ReadFile(t.path(name)) // what cannot be read is copied again
		for one := range bytes.Lines(text) {
			var l line
			// Damaged lines are left out, such as the last of a run that was killed.
			if json.Unmarshal(one, &l) == nil {
				j.records[string(l.Path)] = append(j.records[string(l.Path)], l.record)
			}
		}
	}
	return j
}

// find returns what an earlier run recorded of the copy at rel that i describes.
func (j *journal) find(rel string, i Info) (record, bool) {
	for _, r := range j.records[rel] {
		if r.isOf(i) {
			return r, true
		}
	}
	return record{}, false
}

// add appends a record.
func (j *journal) add(rel string, r record) error {
	text, err := json.Marshal(line{[]byte(rel), r})
	if err != nil {
		return err
	}
	text = append(text, '\n')
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file == nil {
		const flags = unix.O_WRONLY | unix.O_APPEND | unix.O_CREAT | unix.O_NOFOLLOW
		if j.file, err = j.tree.openFile("append", j.name, flags); err != nil {
			return err
		}
		text = append([]byte("\n"), text...) // ends a line that a killed run began
	}
	_, err = j.file.Write(text)
	return err
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
