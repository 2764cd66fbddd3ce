package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

var nopfsSection = section{
	name: "nopfs",
	about: "the workloads of peers from single files, with rankpool and with NoPFS, the authors' " +
		"first release (branch old-nopfs of its repository), built elsewhere: a staging buffer of " +
		"four batches with 4 threads, and memory for the given share of the data with 2 threads. " +
		"Its order is its own, the samples of an epoch are the same.",
	named:   true,
	measure: (*bench).besideNoPFS,
}

var nopfs = peer{"NoPFS", "nopfs", "files", ""}

// besideNoPFS trains the workloads with rankpool and NoPFS.
func (b *bench) besideNoPFS() (grid, error) {
	if b.nopfs == "" {
		return grid{}, errors.New("where is NoPFS? Name a folder with its Python package hdmlp and " +
			"libhdmlp.so by -nopfs DIR")
	}
	ours := fileLoaders[0]
	g := grid{header: []string{"workload, memory", "bound", ours.name, nopfs.name, "ours / NoPFS"}}
	var failed []error
	for _, w := range b.workloads() {
		results, err := b.trainBesideNoPFS(w, ours)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", w.name, err))
		}
		for _, share := range b.shares() {
			for epoch := range 2 {
				bound := w.bound(share, epoch)
				g.lines = append(g.lines, append([]string{
					fmt.Sprintf("%s, %d %%, epoch %d", w.name, share, epoch+1),
					fmt.Sprintf("%.2f s", bound),
				}, beside([]peer{ours, nopfs}, bound, epochOf(results, share, epoch))...))
			}
		}
	}
	fmt.Fprintln(os.Stderr)
	return g, errors.Join(failed...)
}

func (b *bench) trainBesideNoPFS(w workload, ours peer) (map[peer]map[int]trained, error) {
	source := filepath.Join(b.dir, "source")
	defer remove(source)
	if err := makeTree(source, w.samples, w.sampleBytes); err != nil {
		return nil, err
	}
	results := make(map[peer]map[int]trained)
	var failed []error
	for _, p := range []peer{ours, nopfs} {
		var err error
		results[p], err = b.trainShares(w, p, source)
		failed = append(failed, err)
	}
	return results, errors.Join(failed...)
}
