package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// classes is the number of class folders of a benchmark's data set.
const classes = 100

// makeTree writes a data set of files of random bytes.
func makeTree(dir string, samples, sampleBytes int) error {
	noise := rand.NewChaCha8([32]byte{})
	content := make([]byte, sampleBytes)
	return eachFile(dir, samples, func(path string, _ int) error {
		_, _ = noise.Read(content) // it never fails
		return os.WriteFile(path, content, 0o600)
	})
}

// makeLinks creates a data set with many names and few files: each class has one file, and links to
// it. Their times take 8 bytes each, like those of files that were copied one by one, and one file
// is so large that sizes take 4.
func makeLinks(dir string, samples, sampleBytes int) error {
	first := make([]string, classes)
	noise := rand.New(rand.NewPCG(1, 0))
	return eachFile(dir, samples, func(path string, i int) error {
		if class := i % classes; i >= classes {
			return os.Link(first[class], path)
		}
		first[i] = path
		size := sampleBytes
		if i == 0 {
			size = max(size, 1<<17)
		}
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			return err
		}
		written := time.Unix(1_700_000_000, noise.Int64N(int64(365*24*time.Hour)))
		return os.Chtimes(path, written, written)
	})
}

// eachFile creates the class folders and calls make for the path of each sample.
func eachFile(dir string, samples int, make func(path string, i int) error) error {
	for c := range classes {
		if err := os.MkdirAll(filepath.Join(dir, fmt.Sprintf("%03d", c)), 0o700); err != nil {
			return err
		}
	}
	for i := range samples {
		if err := make(filepath.Join(dir, fmt.Sprintf("%03d/%08d.bin", i%classes, i)), i); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a folder, or prints why it could not, since it takes memory.
func remove(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
	}
}
