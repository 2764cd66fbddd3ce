package main

import (
	"fmt"
	"slices"
	"sync"

	"rankpool/benchmarks/simulator"
	"rankpool/scheduler/systems"
)

var hitsSection = section{
	name: "hits",
	about: "the real schedulers of all ranks, simulated without faults, on losses recorded from " +
		"training (8,000 samples, 10 epochs; the first three warm up), " +
		"next to Bélády's MIN with bypass on the same draws, which knows the future; each row is the " +
		"worst of 10, 20 and 40 % capacity. " +
		"\"32,000 samples\" has every recorded sample four times, for partitions of 200 to 800. " +
		"Node-local: hits in the consumer's own rank, of all hits. " +
		"Without a read: the draws less the reads of storage by all ranks, next to the hits of MIN " +
		"with all their memory; what MIN misses is read.",
	measure: ratios((*bench).hits),
}

const (
	lossesPath = "scheduler/testdata/fashion-cnn-8k-losses.npy"
	warmEpochs = 3
)

// samplers are those that have bars.
var samplers = []string{"pads", "weighted", "torch", "subset"}

// job is a simulated pool of ranks.
type job struct {
	title            string
	ranks, batchSize int
	tile             int // copies of every sample
}

var (
	oneOwner   = job{"1 owner", 1, 64, 1}
	fewOwners  = job{"4 ranks × 64", 4, 64, 1}
	manyOwners = job{"16 owners, 32,000 samples", 16, 4, 4}
)

// outcome is the result of a simulated job, with MIN's.
type outcome struct {
	sampler    string
	capacity   float64
	hits, most float64 // shares of the draws
	parted     float64 // like most, with MIN in each partition
	local      float64 // share of the hits
	reads      float64 // of storage by all ranks, as a share of the draws
}

func (b *bench) hits() ([]row, error) {
	losses, err := simulator.LoadLosses(lossesPath)
	if err != nil {
		return nil, err
	}
	jobs := []job{oneOwner, manyOwners}
	capacities := []float64{0.1, 0.2, 0.4}
	if b.quick {
		losses, capacities = losses[:warmEpochs+1], capacities[1:2]
	}
	var rows []row
	for _, j := range jobs {
		outcomes, err := j.simulate(losses, capacities)
		if err != nil {
			return nil, err
		}
		rows = append(rows, j.rows(outcomes)...)
	}
	outcomes, err := fewOwners.simulate(losses, capacities)
	if err != nil {
		return nil, err
	}
	o := worst(outcomes, "", func(o outcome) float64 { return o.local })
	rows = append(rows, ratioRow(fmt.Sprintf("node-local share of hits, %s, %s at %.0f %%",
		fewOwners.title, o.sampler, 100*o.capacity),
		percent(o.local), "", o.local, atLeast, 0.95))
	for _, sampler := range samplers {
		o := worst(outcomes, sampler, func(o outcome) float64 { return (1 - o.reads) / o.most })
		rows = append(rows, ratioRow(fmt.Sprintf("draws without a read / hits of MIN, %s, %s at %.0f %%",
			fewOwners.title, sampler, 100*o.capacity),
			percent(1-o.reads), percent(o.most), (1-o.reads)/o.most, atLeast, fewOwners.least()))
	}
	return rows, nil
}

// least returns the bar for its hits over MIN's, with the memory of all owners as one.
func (j job) least() float64 {
	if j.ranks == 1 {
		return 0.995
	}
	return 0.98
}

// rows compares the job with MIN, a row per sampler; for pads, where partitions cost most, also
// with MIN in each partition.
func (j job) rows(outcomes []outcome) []row {
	var rows []row
	for _, sampler := range samplers {
		o := worst(outcomes, sampler, func(o outcome) float64 { return o.hits / o.most })
		rows = append(rows, ratioRow(fmt.Sprintf("hits / MIN, %s, %s at %.0f %%", j.title, o.sampler,
			100*o.capacity),
			percent(o.hits), percent(o.most), o.hits/o.most, atLeast, j.least()))
	}
	if j.ranks > 1 {
		o := worst(outcomes, "pads", func(o outcome) float64 { return o.hits / o.parted })
		rows = append(rows, ratioRow(fmt.Sprintf("hits / MIN in each hash partition, %s, %s at %.0f %%",
			j.title, o.sampler, 100*o.capacity),
			percent(o.hits), percent(o.parted), o.hits/o.parted, none, 0))
	}
	return rows
}

// simulate runs the job with every sampler and capacity, on two cores.
func (j job) simulate(losses [][]float32, capacities []float64) ([]outcome, error) {
	tiled := make([][]float32, len(losses))
	for epoch, row := range losses {
		tiled[epoch] = slices.Repeat(row, j.tile)
	}
	outcomes := make([]outcome, len(samplers)*len(capacities))
	errs := make([]error, len(outcomes))
	places := make(chan int)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for i := range places {
				outcomes[i], errs[i] = j.compare(tiled, samplers[i/len(capacities)],
					capacities[i%len(capacities)])
			}
		})
	}
	for i := range outcomes {
		places <- i
	}
	close(places)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return outcomes, nil
}

// compare runs one simulation, and MIN on its draws.
func (j job) compare(losses [][]float32, sampler string, capacity float64) (outcome, error) {
	var results []*simulator.Result
	for _, name := range []string{"rankpool", "min", "min-partitioned"} {
		system, err := systems.Find(name)
		if err != nil {
			return outcome{}, err
		}
		r, err := simulator.Run(simulator.Config{
			Trace: &simulator.Trace{Losses: losses}, System: system, Sampler: sampler,
			Capacity: capacity, Ranks: j.ranks, BatchSize: j.batchSize,
			SkipEpochs: warmEpochs, Seed: 1,
		})
		if err != nil {
			return outcome{}, err
		}
		results = append(results, r)
	}
	ranks, draws := results[0], float64(results[0].Draws)
	return outcome{
		sampler: sampler, capacity: capacity, local: float64(ranks.HitsLocal) / float64(ranks.Hits),
		hits: float64(ranks.Hits) / draws, most: float64(results[1].Hits) / draws,
		parted: float64(results[2].Hits) / draws,
		reads:  float64(ranks.StorageBytes) / draws, // a sample is one byte
	}, nil
}

// worst returns the outcome of a sampler ("": any) with the lowest score.
func worst(outcomes []outcome, sampler string, score func(outcome) float64) outcome {
	var found *outcome
	for i := range outcomes {
		o := &outcomes[i]
		if (sampler == "" || o.sampler == sampler) && (found == nil || score(*o) < score(*found)) {
			found = o
		}
	}
	return *found
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }
