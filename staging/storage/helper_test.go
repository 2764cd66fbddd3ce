package storage

import (
	"os"
	"path/filepath"
	"testing"

	"rankpool/staging/dataset"
	"rankpool/staging/stagingtest"
)

// built returns the manifest of samples of one class below root.
func built(root string, samples ...dataset.Sample) *dataset.Manifest {
	b := dataset.NewBuilder(root, len(samples))
	for _, s := range samples {
		if err := b.Add(s); err != nil {
			panic(err)
		}
	}
	m, err := b.Manifest([]string{"c"})
	if err != nil {
		panic(err)
	}
	return m
}

// filesOf returns the manifest of files below root, by their paths relative to it.
func filesOf(t testing.TB, root string, paths ...string) *dataset.Manifest {
	t.Helper()
	var samples []dataset.Sample
	for _, path := range paths {
		info, err := os.Stat(filepath.Join(root, path))
		stagingtest.Must(t, err)
		samples = append(samples, dataset.Sample{
			Path: path, Size: info.Size(), ModTime: info.ModTime().UnixNano(),
		})
	}
	return built(root, samples...)
}
