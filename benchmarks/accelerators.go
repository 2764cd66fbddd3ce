package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// fedWorkload is the workload of MLPerf Storage v3.0 whose samples are files of some 300 KB. Its
// samples make whole batches for each number of accelerators.
var fedWorkload = workload{"RetinaNet", 2_880, 322_957, 24, 47_550 * time.Microsecond}

// fedNumbers are the numbers of accelerators to try.
var fedNumbers = []int{1, 2, 3, 4, 5, 6, 8}

const (
	fedAU        = 0.85  // AU that MLPerf Storage requires of RetinaNet
	fedShare     = 20    // percent of the data in memory, by its rule of five times the memory
	fedBandwidth = 400e6 // bytes per second
	readyBatches = 2     // of each worker, as DataLoader's prefetch_factor

	tinyBytes, tinyBatches = 64, 8 // of the training that shows what the processes use
	plentyBytes            = 16 << 30
	spareBytes             = 128 << 20 // beyond what they used then
)

var acceleratorsSection = section{
	name: "accelerators",
	about: "The number of emulated accelerators that can train MLPerf's RetinaNet at 85 % AU in " +
		"the second epoch. They train in lockstep, each with its own loader of 2 workers (4 for a " +
		"single accelerator), over slowfs at 400 MB/s and 2 ms an open. A control group holds " +
		"everything, page cache included: what the processes use with tiny samples and 128 MiB to " +
		"spare, two batches of each worker, and 20 % of the data. The bound is what the bandwidth " +
		"and memory for 20 % feed.",
	named:   true,
	measure: (*bench).accelerators,
}

// fed is the AU of a loader's second epoch by the number of accelerators.
type fed struct {
	peer
	au map[int]float64
}

// most returns the largest number of accelerators with the AU that MLPerf requires, or 0 if there
// is none.
func (f fed) most() int {
	most := 0
	for number, au := range f.au {
		if au >= fedAU {
			most = max(most, number)
		}
	}
	return most
}

// accelerators measures each loader that reads files with more and more accelerators.
func (b *bench) accelerators() (grid, error) {
	w := fedWorkload
	numbers := fedNumbers
	if b.quick {
		w.samples, w.step, numbers = 96, w.step/5, numbers[:2]
	}
	source := filepath.Join(b.dir, "source")
	defer remove(source)
	if err := makeTree(source, w.samples, w.sampleBytes); err != nil {
		return grid{}, err
	}
	var all []fed
	var failed []error
	for _, p := range fileLoaders {
		one := fed{p, make(map[int]float64)}
		for _, number := range numbers {
			result, err := b.feed(training{w, p, source, fedShare, number, fedBandwidth})
			if err != nil {
				failed = append(failed, fmt.Errorf("%s with %d: %w", p.name, number, err))
				break
			}
			one.au[number] = result.Epochs[1].AU
			fmt.Fprintf(os.Stderr, "\n  %s, %d accelerators: %v", p.name, number, result.Epochs)
			if one.au[number] < fedAU && !b.quick {
				break
			}
		}
		all = append(all, one)
	}
	fmt.Fprintln(os.Stderr)
	return grid{besideHeader(), fedLines(w, all)}, errors.Join(failed...)
}

// feed trains with memory for the share of the samples, for the batches that a loader has ready,
// and for what the processes use themselves: the most that a control group has in use while they
// train on samples of a few bytes, and some to spare.
func (b *bench) feed(t training) (trained, error) {
	tiny := t
	tiny.source, tiny.sampleBytes = filepath.Join(b.dir, "tiny"), tinyBytes
	tiny.samples = tinyBatches * t.batch * t.accelerators
	defer remove(tiny.source)
	if err := makeTree(tiny.source, tiny.samples, tiny.sampleBytes); err != nil {
		return trained{}, err
	}
	own, err := b.trainPeer(tiny, plentyBytes)
	if err != nil {
		return own, err
	}
	ready := readyBatches * t.workers() * t.accelerators * t.batch * t.sampleBytes
	return b.trainPeer(t, own.mostBytes+spareBytes+int64(ready)+t.memoryBytes())
}

// fedLines compares the first loader with the best of the others: how many accelerators each feeds,
// and the AU with as many as the latter feeds.
func fedLines(w workload, all []fed) [][]string {
	ours, best := all[0], all[1]
	for _, other := range all[2:] {
		if n := other.most(); n > best.most() || n == best.most() && other.au[n] > best.au[n] {
			best = other
		}
	}
	demand := float64(w.batch) * float64(w.sampleBytes) / w.step.Seconds()
	bound := fedBandwidth / demand / (1 - fedShare/100.)
	number := max(1, best.most())
	reachable := min(1, bound/float64(number))
	mine, theirs := ours.au[number], best.au[number]
	higher := ratioRow("", "", "", mine/theirs, atLeast, 1)
	if mine*withinBounds >= reachable {
		higher.value = max(higher.value, 1)
	}
	most := ratioRow("", "", "", float64(ours.most())/float64(number), atLeast, 1)
	numbers := []string{
		fmt.Sprintf("%s, %d %%, accelerators at AU %.0f %%", w.name, fedShare, 100*fedAU),
		fmt.Sprintf("%.2f", bound),
	}
	utilised := []string{
		fmt.Sprintf("%s, %d %%, AU with %d of them", w.name, fedShare, number), auText(reachable),
	}
	for _, one := range all {
		numbers = append(numbers, fmt.Sprint(one.most()))
		utilised = append(utilised, auText(one.au[number]))
	}
	return [][]string{
		padded(append(numbers, most.short())), padded(append(utilised, higher.short())),
	}
}

// padded returns a line of the table of all loaders, with empty cells for those that read shards.
func padded(line []string) []string {
	return append(line, make([]string, len(besideHeader())-len(line))...)
}

func auText(au float64) string { return fmt.Sprintf("%.1f %%", 100*au) }
