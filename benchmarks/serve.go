package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

var servedSection = section{
	name: "served",
	about: "one Python process reads all samples in a new random order each pass, by batches of 64, " +
		"warm: from rankpool (rankpool run, one rank), " +
		"from a Redis of our own (mget or a pipeline of 64 GETs, TCP or Unix socket: the best one is " +
		"shown) and from one packed file, mapped. " +
		"In turns, seven rounds, medians of MB/s; with 3 KB samples, as many as CIFAR-10 has to train " +
		"on, five rounds in each of three processes, since memory is faster at one time than at " +
		"another. Served are lists of 64 buffers; \"copied\" means lists of bytes, each copied once " +
		"out of the memory or the file.",
	measure: ratios((*bench).served),
}

// servedResult is what serve.py writes: the rates of each contender, in bytes per second, one per
// round.
type servedResult struct {
	Samples int
	Rates   map[string][]float64
}

func (b *bench) served() ([]row, error) {
	largeSamples, largeRounds := 4_000, 7
	smallSamples, smallRounds, processes := 50_000, 5, 3
	if b.quick {
		largeSamples, largeRounds = 256, 1
		smallSamples, smallRounds, processes = 1_024, 1, 1
	}
	large, err := b.race(largeSamples, 110<<10, largeRounds, 1)
	if err != nil {
		return nil, err
	}
	small, err := b.race(smallSamples, 3_000, smallRounds, processes)
	if err != nil {
		return nil, err
	}
	redis, best := large.bestRedis()
	rows := []row{
		large.compare("110 KiB views / best of Redis ("+redis+")", "rankpool views", best, 10),
		large.compare("110 KiB copied / copied out of a packed mmap", "rankpool copies", "packed copies",
			0.85),
		large.compare("110 KiB views / views of a packed mmap", "rankpool views", "packed views", 0),
	}
	redis, best = small.bestRedis()
	views, copies := 6.0, 0.85
	if slowdown() > sharesCore { // rank and client slow each other down, see results/bars.md
		views, copies = 4, 0.5
	}
	return append(rows,
		small.compare("3 KB views / best of Redis ("+redis+")", "rankpool views", best, views),
		small.compare("3 KB copied / best of Redis ("+redis+")", "rankpool copies", best, 0),
		small.compare("3 KB copied / copied out of a packed mmap", "rankpool copies", "packed copies",
			copies),
		small.compare("3 KB views / views of a packed mmap", "rankpool views", "packed views", 0),
	), nil
}

// race runs serve.py in several processes, one after another, over a new data set; the result has
// the rates of all.
func (b *bench) race(samples, sampleBytes, rounds, processes int) (*servedResult, error) {
	dir := filepath.Join(b.dir, "data")
	defer remove(dir)
	if err := makeTree(dir, samples, sampleBytes); err != nil {
		return nil, err
	}
	all := servedResult{Samples: samples, Rates: map[string][]float64{}}
	for range processes {
		one, err := b.raceOnce(dir, samples, rounds)
		if err != nil {
			return nil, err
		}
		for contender, rates := range one.Rates {
			all.Rates[contender] = append(all.Rates[contender], rates...)
		}
	}
	return &all, nil
}

// raceOnce runs serve.py, and checks that rankpool read storage in the first epoch only.
func (b *bench) raceOnce(dir string, samples, rounds int) (*servedResult, error) {
	var result servedResult
	epochs, err := b.train(dir, "100%", "serve.py", &result, "--rounds", strconv.Itoa(rounds))
	if err != nil {
		return nil, err
	}
	for _, e := range epochs {
		if e.FallbackReads > 0 || e.Epoch > 0 && e.StorageReads > 0 {
			return nil, fmt.Errorf("epoch %d has %d reads of storage and %d fallback reads, so it "+
				"was not warm", e.Epoch, e.StorageReads, e.FallbackReads)
		}
	}
	if result.Samples != samples {
		return nil, errors.New("serve.py had another data set")
	}
	return &result, nil
}

// bestRedis returns the fastest Redis contender and its rate.
func (r *servedResult) bestRedis() (how, contender string) {
	best := 0.0
	for name, rates := range r.Rates {
		if way, ok := strings.CutPrefix(name, "Redis "); ok && median(rates) > best {
			how, contender, best = way, name, median(rates)
		}
	}
	return how, contender
}

// compare divides medians; without a bar the row is informational.
func (r *servedResult) compare(what, ours, other string, limit float64) row {
	is := atLeast
	if limit == 0 {
		is = none
	}
	a, b := median(r.Rates[ours]), median(r.Rates[other])
	return ratioRow(what, rateText(a), rateText(b), a/b, is, limit)
}

func rateText(bytesPerSecond float64) string { return fmt.Sprintf("%.0f MB/s", bytesPerSecond/1e6) }
