package doctor

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/staging/index"
)

const (
	fewFolders = 64 // opened in search of files
	// Entries read per folder: listing a folder of a million files then costs one request.
	fewEntries = 512
)

// Samples implements Machine. Samples of a manifest are spread over it, those of a folder over the
// first of its subfolders.
func (s *system) Samples(data string, n int) (paths []string, err error) {
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
	n = min(n, m.Len())
	for i := range n {
		path := m.Path(draw.SampleID(i * m.Len() / n))
		if !slices.Contains(paths, path) { // samples of one shard are one file
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// walkSome returns up to n files below root, at most two from each of the first folders.
func walkSome(root string, n int) (files []string, err error) {
	folders := []string{root}
	for i := 0; i < len(folders) && i < fewFolders && len(files) < n; i++ {
		entries, err := someEntries(folders[i])
		if err != nil && i == 0 {
			return nil, err
		}
		here := 0
		for _, e := range entries {
			path := filepath.Join(folders[i], e.Name())
			switch {
			case strings.HasPrefix(e.Name(), "."), e.Name() == index.ManifestName: // not samples
			case e.IsDir():
				folders = append(folders, path)
			case here < 2 && len(files) < n && isFile(path):
				files = append(files, path)
				here++
			}
		}
	}
	return files, nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
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
