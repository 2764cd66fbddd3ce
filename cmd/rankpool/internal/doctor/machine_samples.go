package doctor

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rankpool/scheduler"
	"rankpool/staging/index"
)

const (
	fewFolders = 64 // opened in search of files
	// Entries read per folder: listing a folder of a million files then costs one request.
	fewEntries = 512
)

var errNoSample = errors.New("it holds no sample")

// Samples implements Machine. Samples of a manifest are spread over it, those of a folder over the
// first of its subfolders. A data set known to be empty is an error.
func (s *system) Samples(data string, n int) ([]string, error) {
	info, err := os.Stat(data)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return walkSome(data, n)
	}
	m, err := s.manifest(data)
	if err != nil {
		return nil, err
	}
	if m.Len() == 0 {
		return nil, &fs.PathError{Op: "read", Path: data, Err: errNoSample}
	}
	var paths []string
	n = min(n, m.Len())
	for i := range n {
		path := m.Path(scheduler.SampleID(i * m.Len() / n))
		if !slices.Contains(paths, path) { // samples of one shard are one file
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// walkSome returns up to n files below root, about as many from each folder that it opens.
func walkSome(root string, n int) ([]string, error) {
	folders, files := []string{root}, [][]string{}
	all := true // all entries were read
	for i := 0; i < len(folders) && i < fewFolders; i++ {
		entries, err := someEntries(folders[i])
		if err != nil {
			if i == 0 {
				return nil, err
			}
			all = false
			continue
		}
		all = all && len(entries) < fewEntries
		var here []string
		for _, e := range entries {
			path := filepath.Join(folders[i], e.Name())
			switch {
			case strings.HasPrefix(e.Name(), "."), e.Name() == index.ManifestName: // not samples
			case e.IsDir():
				folders = append(folders, path)
			case e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0:
				here = append(here, path)
			}
		}
		if len(here) > 0 {
			files = append(files, here)
		}
	}
	if len(files) == 0 && all && len(folders) <= fewFolders {
		return nil, &fs.PathError{Op: "read", Path: root, Err: errNoSample}
	}
	return pick(files, n), nil
}

func someEntries(folder string) ([]os.DirEntry, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(fewEntries)
	if len(entries) > 0 || errors.Is(err, io.EOF) { // what was read before an error will do
		return entries, nil
	}
	return nil, err
}

// pick chooses n files from all folders in turn, in the order in which the folders list them.
func pick(folders [][]string, n int) (paths []string) {
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, files := range folders {
			if turn >= len(files) {
				continue
			}
			more = true
			if info, err := os.Stat(files[turn]); err == nil && info.Mode().IsRegular() {
				paths = append(paths, files[turn])
			}
			if len(paths) == n {
				return paths
			}
		}
	}
	return paths
}
