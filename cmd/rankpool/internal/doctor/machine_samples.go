package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rankpool/scheduler/draw"
	"rankpool/staging/index"
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

// walkSome returns up to n files below root, at most two from each folder.
func walkSome(root string, n int) (files []string, err error) {
	here := map[string]int{} // files by folder
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		hidden := strings.HasPrefix(e.Name(), ".") && path != root
		switch {
		case err != nil && path == root:
			return err
		case len(files) == n:
			return fs.SkipAll
		case e.IsDir() && hidden:
			return fs.SkipDir
		case err != nil, e.IsDir(), hidden, e.Name() == index.ManifestName: // not a sample
		case here[filepath.Dir(path)] < 2:
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files = append(files, path)
				here[filepath.Dir(path)]++
			}
		}
		return nil
	})
	return files, err
}
