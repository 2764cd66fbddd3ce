package main

import (
	"fmt"
	"path/filepath"
)

var memorySection = section{
	name: "memory",
	about: "a real rank that serves a million samples (links to few files; names of 12 bytes) and " +
		"plans three epochs with pads, one trainer: the most of its process's anonymous memory " +
		"(sampled every 20 ms; Go's garbage and the scan included), and its files in the session " +
		"folder, which are memory too; less the same of a thousand samples.",
	measure: (*bench).memory,
}

// memoryResult is what memory.py writes, in bytes.
type memoryResult struct {
	Samples          float64
	Most, End, Files float64
}

func (b *bench) memory() ([]row, error) {
	many := 1_000_000
	if b.quick {
		many = 20_000
	}
	large, err := b.rankMemory(many)
	if err != nil {
		return nil, err
	}
	small, err := b.rankMemory(1_000)
	if err != nil {
		return nil, err
	}
	perMillion := func(large, small float64) float64 { return (large - small) / (float64(many) / 1e6) }
	process, files := perMillion(large.Most, small.Most), perMillion(large.Files, small.Files)
	end := perMillion(large.End, small.End)
	const bar = 64 << 20
	mib := func(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
	return []row{
		plainRow("memory beyond the slab, a million samples and rank", mib(process+files), "",
			process+files, bar, "64 MiB"),
		{
			what: "of it, the process at its most / at the end / files in /dev/shm",
			ours: mib(process) + " / " + mib(end) + " / " + mib(files),
		},
	}, nil
}

func (b *bench) rankMemory(samples int) (*memoryResult, error) {
	dir := filepath.Join(b.dir, "links")
	defer remove(dir)
	if err := makeLinks(dir, samples, 1024); err != nil {
		return nil, err
	}
	var result memoryResult
	if _, err := b.train(dir, "64MiB", "memory.py", &result); err != nil {
		return nil, err
	}
	return &result, nil
}
