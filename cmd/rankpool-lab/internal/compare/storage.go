package compare

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"

	"rankpool/benchmarks/slowfs"
)

// A storage is where a training reads its data: the original places, or folders that emulate slow
// storage.
type storage struct {
	data    []string // flags of run
	servers []*slowfs.Server
	root    string // of the mounts, "" without
}

// mount returns where a training finds the data. With --slowfs that is newly mounted storage, which
// the caller closes.
func (o *Options) mount() (*storage, error) {
	if o.storage == nil {
		return &storage{data: o.data}, nil
	}
	root, err := os.MkdirTemp("", "rankpool-compare-")
	if err != nil {
		return nil, err
	}
	s := &storage{root: root}
	for i, flag := range o.data {
		name, path := nameAndPath(flag)
		if path, err = filepath.Abs(path); err != nil {
			return nil, errors.Join(err, s.close())
		}
		// A data set is named after its folder, so keep the folder's name.
		dir := filepath.Join(root, string(rune('a'+i)), filepath.Base(path))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, errors.Join(err, s.close())
		}
		server, err := slowfs.Mount(path, dir, *o.storage)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.servers = append(s.servers, server)
		s.data = append(s.data, name+dir)
	}
	return s, nil
}

// bytes returns the number of bytes read so far, nil if they are not counted.
func (s *storage) bytes() *int64 {
	if s.root == "" {
		return nil
	}
	sum := int64(0)
	for _, server := range s.servers {
		sum += server.Stats().Bytes
	}
	return &sum
}

// close unmounts and removes the emulated storage. Closing again does nothing.
func (s *storage) close() error {
	if s.root == "" {
		return nil
	}
	var err error
	for _, server := range s.servers {
		err = errors.Join(err, server.Close())
	}
	if err == nil { // otherwise something may still be mounted
		err = os.RemoveAll(s.root)
	}
	s.root = ""
	return err
}

// namedData matches NAME=PATH, as run does.
var namedData = regexp.MustCompile(`(?s)^([A-Za-z0-9][A-Za-z0-9_.-]*)=(.*)$`)

// nameAndPath returns the "NAME=" and the path of a --data flag.
func nameAndPath(flag string) (name, path string) {
	if m := namedData.FindStringSubmatch(flag); m != nil {
		return m[1] + "=", m[2]
	}
	return "", flag
}
