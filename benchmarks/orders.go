package main

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/dustin/go-humanize"
)

var ordersSection = section{
	name: "orders",
	about: "one trainer hands in the order of torch's WeightedRandomSampler, in batches of 256 of " +
		"20,000 small files: the time to the first batch of a DataLoader, less that of " +
		"list(BatchSampler(…)) in the same process; the better of three epochs.",
	measure: ratios((*bench).orders),
}

// ordersResult is what orders.py writes, in seconds of each epoch.
type ordersResult struct{ Drawn, First []float64 }

func (b *bench) orders() ([]row, error) {
	dir := filepath.Join(b.dir, "data")
	defer remove(dir)
	if err := makeTree(dir, 20_000, 100); err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range []struct {
		draws int
		most  float64 // seconds
	}{{1_280_000, 0.1}, {14_200_000, 1.2}} {
		if b.quick {
			c.draws /= 100
		}
		var r ordersResult
		if _, err := b.train(dir, "100%", "orders.py", &r, "--data", dir, "--draws",
			strconv.Itoa(c.draws)); err != nil {
			return nil, err
		}
		more := r.First[0] - r.Drawn[0]
		for i, first := range r.First {
			more = min(more, first-r.Drawn[i])
		}
		rows = append(rows, plainRow("handing in "+humanize.Comma(int64(c.draws))+" draws",
			fmt.Sprintf("%.2f s", more), fmt.Sprintf("list: %.2f s", r.Drawn[0]), more, c.most,
			fmt.Sprintf("%v s", c.most)))
	}
	return rows, nil
}
