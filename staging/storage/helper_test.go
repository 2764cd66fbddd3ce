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
	m, err := dataset.Build(
		root,
		[]string{"c"},
		len(samples),
		func(i int) dataset.Sample { return samples[i] },
	)
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
