package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"
)

var ordersSection = section{
	name: "orders",
	about: "one trainer hands in the order of torch's WeightedRandomSampler, in batches of 256, " +
		"over as many rows of 16 bytes as it draws: the time to the first batch of a DataLoader, " +
		"less that of list(BatchSampler(…)) in the same process and the wait for the plan, which has " +
		"a row of its own; the best of three epochs.",
	measure: ratios((*bench).orders),
}

// ordersResult is what orders.py writes, in seconds of each epoch.
type ordersResult struct{ Drawn, First, Planned []float64 }

func (b *bench) orders() ([]row, error) {
	dir := filepath.Join(b.dir, "data")
	defer remove(dir)
	var rows []row
	for _, c := range []struct {
		draws int
		most  float64 // seconds
	}{{1_280_000, 0.1}, {14_200_000, 1.2}} {
		if b.quick {
			c.draws /= 100
		}
		if err := makeRows(dir, c.draws); err != nil {
			return nil, err
		}
		var r ordersResult
		if _, err := b.train(dir, "100%", "orders.py", &r); err != nil {
			return nil, err
		}
		more := make([]float64, len(r.First))
		for i, first := range r.First {
			more[i] = first - r.Drawn[i] - r.Planned[i]
		}
		draws, list := humanize.Comma(int64(c.draws)), fmt.Sprintf("list: %.2f s", slices.Min(r.Drawn))
		rows = append(rows, plainRow("handing in "+draws+" draws",
			fmt.Sprintf("%.2f s", slices.Min(more)), list, slices.Min(more), c.most,
			strconv.FormatFloat(c.most, 'g', -1, 64)+" s"), row{
			what: "the wait for the plan of them", ours: fmt.Sprintf("%.2f s", slices.Min(r.Planned)),
		})
	}
	return rows, nil
}

// makeRows writes an array of rows of 16 bytes, each a sample.
func makeRows(dir string, samples int) error {
	header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 16), }", samples)
	start := append([]byte("\x93NUMPY\x01\x00\x76\x00"), header...)
	start = append(start, bytes.Repeat([]byte{' '}, 127-len(start))...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, "rows.npy")
	if err := os.WriteFile(path, append(start, '\n'), 0o600); err != nil {
		return err
	}
	return os.Truncate(path, int64(128+16*samples))
}
