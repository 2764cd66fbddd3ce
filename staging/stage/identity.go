package stage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"
)

// The extended attributes of a staged file: the XXH3 checksum of its bytes (16 hexadecimal digits),
// and its origin.
const (
	SumAttribute    = "user.rankpool.xxh3"
	SourceAttribute = "user.rankpool.source"
)

// A record describes a staged file and its origin.
type record struct {
	sum     uint64 // XXH3 of 64 bits, without seed
	size    int64  // of the source, like all that follows except placed
	modTime int64
	dev     uint64
	inode   uint64
	placed  int64 // modification time of the copy in its file system
	path    string
}

// longestPath bounds the source's path in an attribute: ext4 keeps all attributes of a file in one
// block of 4 KiB. A longer path is replaced by its checksum.
const longestPath = 1024

func recordOf(plan *Plan, item *Item, sum uint64, placed int64) record {
	return record{
		sum, item.Size, item.ModTime, item.Dev, item.Inode, placed,
		recordedPath(plan.Root, item.Path),
	}
}

// recordedPath returns the path that a record has for the file rel of the source root.
func recordedPath(root, rel string) string {
	path := join(root, rel)
	if len(path) > longestPath {
		return fmt.Sprintf("xxh3:%016x", xxh3.HashString(path))
	}
	return path
}

// source returns the text of SourceAttribute.
func (r record) source() string {
	return fmt.Sprintf("1 %d %d %d %d %d %s", r.size, r.modTime, r.dev, r.inode, r.placed, r.path)
}

func (r record) checksum() string { return fmt.Sprintf("%016x", r.sum) }

// parseRecord parses the texts of both attributes.
func parseRecord(sum, source string) (r record, ok bool) {
	fields := strings.SplitN(source, " ", 7)
	if len(fields) != 7 || fields[0] != "1" || len(sum) != 16 {
		return record{}, false
	}
	var err error
	number := func(text string) int64 {
		n, bad := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, bad)
		return n
	}
	unsigned := func(text string, base int) uint64 {
		n, bad := strconv.ParseUint(text, base, 64)
		err = errors.Join(err, bad)
		return n
	}
	r = record{
		sum: unsigned(sum, 16), size: number(fields[1]), modTime: number(fields[2]),
		dev: unsigned(fields[3], 10), inode: unsigned(fields[4], 10), placed: number(fields[5]),
		path: fields[6],
	}
	return r, err == nil
}

// fits reports whether r is of a copy of the item as it is now. The device does not count: it
// differs between clients and boots.
func (r record) fits(plan *Plan, item *Item) bool {
	want := recordOf(plan, item, r.sum, r.placed)
	want.dev = r.dev
	return r == want
}

// A sidecar keeps the records if the destination has no extended attributes: lines appended to a
// file of this rank; the last line of a path counts. It is safe for concurrent use.
type sidecar struct {
	fsys    FileSystem
	dir     string // stateName in the destination
	rank    int
	mu      sync.Mutex
	records map[string]record
	file    File // nil until there is something to write
}

const sidecarPrefix = "index-"

// openSidecar reads what all ranks have written in the destination dest; the first time there is
// nothing.
func openSidecar(fsys FileSystem, dest string, rank int) *sidecar {
	s := &sidecar{fsys: fsys, dir: join(dest, stateName), rank: rank, records: map[string]record{}}
	names, err := fsys.ReadNames(s.dir)
	if err != nil {
		return s
	}
	for _, name := range names {
		if strings.HasPrefix(name, sidecarPrefix) {
			s.load(join(s.dir, name))
		}
	}
	return s
}

// load reads a file's lines, and skips damaged ones, such as the last of a run that was killed.
func (s *sidecar) load(path string) {
	file, err := s.fsys.Open(path)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewReader(io.NewSectionReader(file, 0, math.MaxInt64))
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 3)
		if len(fields) != 3 {
			continue
		}
		rel, err1 := strconv.Unquote(fields[1])
		source, err2 := strconv.Unquote(fields[2])
		if r, ok := parseRecord(fields[0], source); ok && err1 == nil && err2 == nil {
			s.records[rel] = r
		}
	}
}

func (s *sidecar) find(rel string) (record, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.records[rel]
	return r, ok
}

// add appends a record.
func (s *sidecar) add(rel string, r record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		if err := makeFolder(s.fsys, s.dir); err != nil {
			return err
		}
		file, err := s.fsys.Append(join(s.dir, sidecarPrefix+strconv.Itoa(s.rank)))
		if err != nil {
			return err
		}
		s.file = file
		if _, err := file.Write([]byte("\n")); err != nil { // ends a line that a killed run began
			return err
		}
	}
	s.records[rel] = r
	// A path with a space in it must stay one field: spaces are quoted.
	quoted := strings.ReplaceAll(strconv.QuoteToASCII(rel), " ", `\x20`)
	_, err := fmt.Fprintf(s.file, "%s %s %s\n", r.checksum(), quoted, strconv.QuoteToASCII(r.source()))
	return err
}

// forget overrides a record that an older run wrote, of a file that now has its own attributes.
func (s *sidecar) forget(rel string, r record) error {
	if _, found := s.find(rel); !found {
		return nil
	}
	return s.add(rel, r)
}

func (s *sidecar) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
