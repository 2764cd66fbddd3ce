package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
)

var boundarySection = section{
	name: "boundary",
	about: "one trainer trains 20,000 samples of 3 KB, 20 % in memory, pads, batches of 64, with " +
		"steps of 10 ms that only sleep: the waits from an epoch's last step to the next epoch's " +
		"first batch, next to a step; the median of eight is judged.",
	measure: ratios((*bench).boundary),
}

// boundaryResult is what boundary.py writes, in seconds.
type boundaryResult struct {
	Step                float64
	Boundaries, Between []float64
}

func (b *bench) boundary() ([]row, error) {
	samples, epochs := 20_000, 9
	if b.quick {
		samples, epochs = 2_000, 2
	}
	dir := filepath.Join(b.dir, "data")
	defer remove(dir)
	if err := makeTree(dir, samples, 3_000); err != nil {
		return nil, err
	}
	var r boundaryResult
	if _, err := b.train(dir, "20%", "boundary.py", &r, "--epochs", strconv.Itoa(epochs)); err != nil {
		return nil, err
	}
	stall := median(r.Boundaries)
	ms := func(seconds float64) string { return fmt.Sprintf("%.1f ms", 1000*seconds) }
	return []row{
		ratioRow("stall at an epoch boundary / a step", ms(stall), ms(r.Step), stall/r.Step, atMost, 1),
		{
			what: "the longest one / the median wait for a batch inside an epoch",
			ours: ms(slices.Max(r.Boundaries)) + " / " + ms(median(r.Between)),
		},
	}, nil
}
