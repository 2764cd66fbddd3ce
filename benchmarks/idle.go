package main

import (
	"fmt"
	"path/filepath"
	"strconv"
)

var idleSection = section{
	name: "idle",
	about: "a rank of two under MPI whose trainers are connected, were given a batch, and wait: the " +
		"processor time of its process, as a share of one core. " +
		"It polls MPI, measures itself once a second, and looks at the memory ten times a second.",
	measure: ratios((*bench).idle),
}

func (b *bench) idle() ([]row, error) {
	seconds := 20
	if b.quick {
		seconds = 1
	}
	dir, out := filepath.Join(b.dir, "data"), filepath.Join(b.dir, "result.json")
	defer remove(dir)
	if err := makeTree(dir, 512, 3_000); err != nil {
		return nil, err
	}
	flags := []string{"--data", dir, "--memory", "20%", "--ranks", "2"}
	if err := b.runTool(flags, "idle.py", "--out", out, "--seconds",
		strconv.Itoa(seconds)); err != nil {
		return nil, err
	}
	var result struct{ Spent, Seconds float64 }
	if err := readJSON(out, &result); err != nil {
		return nil, err
	}
	share := result.Spent / result.Seconds
	return []row{plainRow("a rank with idle trainers, share of a core",
		fmt.Sprintf("%.2f %%", 100*share), "", share, 0.03, "3 %")}, nil
}
