package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"

	"rankpool/staging/dataset"
	"rankpool/staging/index"
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

// makeRows writes a file of rows of 16 bytes, each a sample, and their manifest.
func makeRows(dir string, samples int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, "rows")
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = file.Truncate(16 * int64(samples))
	info, statErr := file.Stat()
	if err = cmp.Or(err, statErr, file.Close()); err != nil {
		return err
	}
	rows := dataset.NewBuilder(dir, samples)
	for i := range int64(samples) {
		if err := rows.Add(dataset.Sample{
			Path: "rows", Format: dataset.FormatPart, Offset: 16 * i, Size: 16,
			ModTime: info.ModTime().UnixNano(),
		}); err != nil {
			return err
		}
	}
	m, err := rows.Manifest([]string{""})
	if err != nil {
		return err
	}
	return dataset.WriteParquet(filepath.Join(dir, index.ManifestName), m)
}
