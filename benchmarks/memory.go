package main

import (
	"fmt"
	"path/filepath"
)

var memorySection = section{
	name: "memory",
	about: "a real rank that serves a million samples (links to few files; names of 12 bytes) and " +
		"plans three epochs with pads, one trainer: the most of its process's anonymous memory " +
		"(sampled every 20 ms; Go's garbage included) and the files in its folder, which are memory " +
		"too; and the index that all processes of the node map. Less the same of a thousand samples.",
	measure: ratios((*bench).memory),
}

// memoryResult is what memory.py writes, in bytes.
type memoryResult struct {
	Samples                 float64
	Most, End, Files, Index float64
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
	index := perMillion(large.Index, small.Index)
	mib := func(bytes float64) string { return fmt.Sprintf("%.0f MiB", bytes/(1<<20)) }
	return []row{
		plainRow("memory of a rank beyond slab and index, a million samples", mib(process+files), "",
			process+files, 64<<20, "64 MiB"),
		{
			what: "of it, the process at its most / at the end / files in its folder",
			ours: mib(process) + " / " + mib(end) + " / " + mib(files),
		},
		plainRow("index that the node's processes share, a million samples", mib(index), "",
			index, 32<<20, "32 MiB"),
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
