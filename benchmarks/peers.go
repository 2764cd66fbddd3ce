package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rankpool/benchmarks/slowfs"
)

// workload is a training on accelerators that are emulated as in MLPerf Storage: a step sleeps.
type workload struct {
	name                        string
	samples, sampleBytes, batch int
	step                        time.Duration
}

// Source: MLPerf Storage, configs/dlio/workload: ResNet-50 v1.0 on an H100, RetinaNet and U-Net3D
// v3.0 on a B200, but fewer samples.
// Differs: those of U-Net3D have 1/32 of the bytes, and all the same size; Fashion-MNIST is ours.
var workloads = []workload{
	{"ResNet-50", 8_000, 114_660, 400, 224 * time.Millisecond},
	{"RetinaNet", 2_880, 322_957, 24, 47_550 * time.Microsecond},
	{"U-Net3D / 32", 210, 4_581_270, 7, 162 * time.Millisecond},
	{"Fashion-MNIST", 12_800, 500, 128, 5 * time.Millisecond},
}

// small returns the workload for a quick run: a few batches, but shards for all workers.
func (w workload) small() workload {
	w.batch = max(4, w.batch/10)
	steps := max(4, 2*peerWorkers*leastShard/(w.sampleBytes+tarHeader)/w.batch)
	w.samples, w.step = steps*w.batch, w.step/10
	return w
}

// shardBytes returns the largest size of its shards.
func (w workload) shardBytes() int {
	return min(64<<20, max(leastShard, w.samples*w.sampleBytes/leastShards))
}

// peer is a loader that trains on a workload, the format that it reads, and its package on PyPI, ""
// for ours.
type peer struct{ name, loader, format, from string }

// Loaders that read files are compared with each other, and so are those that read shards. Ours
// comes first in both.
var (
	fileLoaders = []peer{
		{"rankpool, files", "rankpool", "files", ""},
		{"DataLoader", "torch", "files", "torch"},
		{"SPDL", "spdl", "files", "spdl"},
		{"DALI", "dali", "files", "nvidia-dali-cuda130"},
	}
	shardLoaders = []peer{
		{"rankpool, tar shards", "rankpool", "tar", ""},
		{"WebDataset", "webdataset", "tar", "webdataset"},
		{"Streaming", "streaming", "mds", "mosaicml-streaming"},
		{"LitData", "litdata", "litdata", "litdata"},
	}
	peers = slices.Concat(fileLoaders, shardLoaders)
)

// besideHeader returns the header of the table of all loaders side by side.
func besideHeader() []string {
	header := []string{"workload, memory", "bound"}
	for _, side := range [][]peer{fileLoaders, shardLoaders} {
		for _, p := range side {
			header = append(header, p.name)
		}
		header = append(header, "ours / best")
	}
	return header
}

const (
	leastShard   = 1 << 20 // bytes, the least that rankpool pack accepts without a unit
	tarHeader    = 512     // bytes of a sample in a tar shard besides its own
	peerWorkers  = 4       // processes of each loader, threads of SPDL
	leastShards  = 12      // WebDataset's workers each read shards of their own
	peerBase     = 1 << 30 // memory that Python, torch and the workers may use besides the samples
	withinBounds = 1.01    // a ratio to the bound that counts as reached
)

var peersSection = section{
	name: "peers",
	about: "two epochs of MLPerf's workloads, steps that sleep, one trainer with 4 workers, over " +
		"slowfs set to 200 MB/s and 2 ms an open, which keeps pages; a control group of 1 GiB and " +
		"the given share of the data holds everything, page cache included. The bound is the " +
		"larger of the steps' time and the bytes that cannot be in memory over the bandwidth. Cells " +
		"are the seconds of an epoch and its accelerator's utilisation (AU); \"ours / best\" is " +
		"rankpool's time beside the fastest other loader of files, or of shards: yes where it is " +
		"at most 1, or rankpool is within 1 % of the bound.",
	named:   true,
	measure: (*bench).peers,
}

// trained is what peers/train.py reports of two epochs.
type trained struct {
	Epochs    []trainedEpoch
	mostBytes int64 // that its control group had in use at a time
}

type trainedEpoch struct {
	Seconds, AU              float64
	Samples, Distinct, Bytes int64
}

func (e trainedEpoch) String() string {
	return fmt.Sprintf("%.2f s, %.0f %%", e.Seconds, 100*e.AU)
}

func (b *bench) peers() (grid, error) {
	g := grid{header: besideHeader()}
	var failed []error
	for _, w := range b.workloads() {
		lines, err := b.comparePeers(w)
		g.lines = append(g.lines, lines...)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	if len(g.lines) == 0 && len(failed) == 0 {
		return g, fmt.Errorf("unknown workload %q", b.trains)
	}
	return g, errors.Join(failed...)
}

// workloads returns those to measure.
func (b *bench) workloads() []workload {
	var chosen []workload
	for _, w := range workloads {
		if b.trains != "" && b.trains != w.name {
			continue
		}
		if b.quick {
			w = w.small()
		}
		chosen = append(chosen, w)
	}
	return chosen
}

// shares returns the shares of the samples that there is memory for, in percent.
func (b *bench) shares() []int {
	if b.quick {
		return []int{20}
	}
	return []int{100, 20}
}

// comparePeers trains all peers on a workload with all of the data in memory, and with 20 %.
func (b *bench) comparePeers(w workload) ([][]string, error) {
	source := filepath.Join(b.dir, "source")
	defer remove(source)
	if err := makeTree(source, w.samples, w.sampleBytes); err != nil {
		return nil, err
	}
	shares, results := b.shares(), make(map[peer]map[int]trained)
	var failed []error
	for _, format := range []string{"files", "tar", "mds", "litdata"} {
		dir := source
		if format != "files" {
			dir = filepath.Join(b.dir, format)
			if err := b.convert(format, source, dir, w.shardBytes()); err != nil {
				remove(dir)
				return nil, fmt.Errorf("%s: %w", format, err)
			}
		}
		for _, p := range peers {
			if p.format != format {
				continue
			}
			var err error
			results[p], err = b.trainShares(w, p, dir)
			failed = append(failed, err)
		}
		if dir != source {
			remove(dir)
		}
	}
	fmt.Fprintln(os.Stderr)
	return peerLines(w, shares, results), errors.Join(failed...)
}

// trainShares trains a peer with each share of the data in memory. It returns an error if rankpool
// fails; why another loader fails is printed.
func (b *bench) trainShares(w workload, p peer, dir string) (map[int]trained, error) {
	results := make(map[int]trained)
	var failed []error
	for _, share := range b.shares() {
		t := training{w, p, dir, share, 1, pfsBandwidth}
		one, err := b.trainPeer(t, peerBase+t.memoryBytes())
		switch {
		case err == nil:
			results[share] = one
		case p.loader == "rankpool":
			failed = append(failed, fmt.Errorf("%s with %d %%: %w", p.name, share, err))
		default: // its cell says so
			fmt.Fprintf(os.Stderr, "\n%s with %d %%: %v", p.name, share, err)
		}
		fmt.Fprintf(os.Stderr, "\n  %s, %s, %d %%: %v", w.name, p.name, share, one.Epochs)
	}
	return results, errors.Join(failed...)
}

// convert writes the source in another format, as shards of limited size.
func (b *bench) convert(format, source, dir string, shardBytes int) error {
	size := fmt.Sprint(shardBytes)
	command := exec.Command(b.python, "benchmarks/peers/convert.py", format, source, dir, size)
	if format == "tar" {
		command = exec.Command(b.tool, "pack", "--data", source, "--dest", dir, "--order", "random",
			"--shard-size", size, "--tune", "progress=0")
	}
	command.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(b.dir, "cache"))
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

// training is two epochs of a workload, the first one cold.
type training struct {
	workload
	peer
	source       string
	share        int // of the samples for which there is memory, in percent
	accelerators int // which train in step, each with a loader of its own
	bandwidth    slowfs.Bytes
}

// command returns the command that trains from a mounted folder, and writes the result to a file.
func (t training) command(b *bench, mounted, out string) []string {
	command := []string{
		b.python, "benchmarks/peers/train.py", "--loader", t.loader, "--data", mounted,
		"--out", out, "--batch", fmt.Sprint(t.batch), "--sample-bytes", fmt.Sprint(t.sampleBytes),
		"--workers", fmt.Sprint(t.workers()),
		"--step-seconds", fmt.Sprint(t.step.Seconds()),
		"--accelerators", fmt.Sprint(t.accelerators),
	}
	switch t.loader {
	case "nopfs":
		return append(command, "--nopfs", b.nopfs, "--memory-bytes", fmt.Sprint(t.memoryBytes()))
	case "rankpool":
	default:
		return command
	}
	run := []string{
		b.tool, "run", "--data", mounted, "--tune", "progress=0", "--trainers-per-rank",
		fmt.Sprint(t.accelerators), "--memory", fmt.Sprintf("%d%%", t.share), "--",
	}
	return append(run, command...)
}

// memoryBytes returns the memory for the share of the samples.
func (t training) memoryBytes() int64 {
	return int64(t.samples) * int64(t.sampleBytes) * int64(t.share) / 100
}

// workers returns the number of workers of a loader.
func (t training) workers() int {
	if t.accelerators > 1 {
		return peerWorkers / 2
	}
	return peerWorkers
}

// trainPeer trains in a control group with so many bytes of memory for everything.
func (b *bench) trainPeer(t training, memoryBytes int64) (trained, error) {
	var result trained
	config := slowPFS
	config.KeepCache, config.Bandwidth = true, t.bandwidth
	server, err := b.mount(t.source, filepath.Join(b.dir, "slow"), config)
	if err != nil {
		return result, err
	}
	defer b.unmount()
	group, err := newMemoryGroup(memoryBytes)
	if err != nil {
		return result, err
	}
	b.group.Store(group)
	defer b.endGroup()
	out := filepath.Join(b.dir, "result.json")
	train := group.command(t.command(b, server.Dir(), out))
	train.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(b.dir, "cache"))
	var said bytes.Buffer
	train.Stdout, train.Stderr = &said, &said
	if err := train.Run(); err != nil {
		return result, fmt.Errorf("%w\n%s", err, said.Bytes())
	}
	if err := readJSON(out, &result); err != nil {
		return result, err
	}
	if result.mostBytes, err = group.mostBytes(); err != nil {
		return result, err
	}
	size := int64(t.samples) * int64(t.sampleBytes)
	for number, e := range result.Epochs {
		if e.Samples != int64(t.samples) || e.Distinct != e.Samples || e.Bytes != size {
			return result, fmt.Errorf("epoch %d had %d samples, %d of them different, of %d bytes, "+
				"and the data set has %d of %d",
				number, e.Samples, e.Distinct, e.Bytes, t.samples, size)
		}
	}
	return result, nil
}

// endGroup ends what runs in the control group, if there is one.
func (b *bench) endGroup() {
	if group := b.group.Swap(nil); group != nil {
		group.remove()
	}
}

// peerLines has a line for each memory and epoch. A loader that failed has no cells in results.
func peerLines(w workload, shares []int, results map[peer]map[int]trained) [][]string {
	var lines [][]string
	for _, share := range shares {
		for epoch := range 2 {
			bound := w.bound(share, epoch)
			line := []string{
				fmt.Sprintf("%s, %d %%, epoch %d", w.name, share, epoch+1),
				fmt.Sprintf("%.2f s", bound),
			}
			for _, side := range [][]peer{fileLoaders, shardLoaders} {
				line = append(line, beside(side, bound, epochOf(results, share, epoch))...)
			}
			lines = append(lines, line)
		}
	}
	return lines
}

// epochOf returns a function that returns a peer's epoch, or false if the peer failed.
func epochOf(
	results map[peer]map[int]trained, share, epoch int,
) func(peer) (trainedEpoch, bool) {
	return func(p peer) (trainedEpoch, bool) {
		one, ok := results[p][share]
		if !ok {
			return trainedEpoch{}, false
		}
		return one.Epochs[epoch], true
	}
}

// beside returns the cells of loaders, and our time over that of the fastest of the others.
func beside(side []peer, bound float64, epoch func(peer) (trainedEpoch, bool)) []string {
	var cells []string
	var found []float64
	for _, p := range side {
		e, ok := epoch(p)
		if !ok {
			cells = append(cells, "failed")
			continue
		}
		cells = append(cells, e.String())
		found = append(found, e.Seconds)
	}
	ours, ok := epoch(side[0])
	if !ok || len(found) == 1 {
		return append(cells, "")
	}
	return append(cells, epochRow(ours.Seconds, slices.Min(found[1:]), bound).short())
}

// epochRow compares the seconds of an epoch: at most as many, or within 1 % of the bound.
func epochRow(ours, best, bound float64) row {
	r := ratioRow("", "", "", ours/best, atMost, 1)
	if ours <= withinBounds*bound {
		r.value = min(r.value, 1)
	}
	return r
}

// bound returns how many seconds an epoch takes at least with memory for a share, in percent.
func (w workload) bound(share, epoch int) float64 {
	missed := float64(w.samples) * float64(w.sampleBytes)
	if epoch > 0 {
		missed *= 1 - float64(share)/100
	}
	steps := float64((w.samples+w.batch-1)/w.batch) * w.step.Seconds()
	return max(steps, missed/pfsBandwidth)
}

// versions returns the versions of the peers that are installed, "" if peers are not measured.
func (b *bench) versions(chosen []section) string {
	if !slices.ContainsFunc(chosen, func(s section) bool { return s.name == peersSection.name }) {
		return ""
	}
	var packages []string
	for _, p := range peers {
		if p.from != "" {
			packages = append(packages, p.from)
		}
	}
	const list = "import platform, sys, importlib.metadata as m; " +
		"print('Python', platform.python_version(), *(f', {p} {m.version(p)}' for p in sys.argv[1:]))"
	said, err := exec.Command(b.python, append([]string{"-c", list}, packages...)...).Output()
	if err != nil {
		return fmt.Sprintf(" The versions of the loaders are unknown: %v.", err)
	}
	return " " + strings.ReplaceAll(strings.TrimSpace(string(said)), " ,", ",") + "."
}
