package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"rankpool/benchmarks/slowfs"
)

const (
	pfsRanks     = 4
	pfsBandwidth = 200e6 // bytes per second
	pfsBatch     = 64    // of one trainer, as in epoch.py
)

// slowPFS is a parallel file system whose clients cache names, attributes and pages of open files,
// and read ahead, as Lustre's do under their locks.
var slowPFS = slowfs.Config{
	Bandwidth: pfsBandwidth, OpenLatency: 2 * time.Millisecond,
	EntryTimeout: time.Minute, AttrTimeout: time.Minute, PageCache: true,
}

var stagingSection = section{
	name: "staging",
	about: "a cold epoch of 20,000 files of 110 KB over slowfs, set to 200 MB/s and 2 ms an open, " +
		"by 4 ranks with a trainer each that takes batches as fast as they come, " +
		"next to the set bandwidth; the same files by cp -r, rsync, tar | tar (into memory) and one " +
		"DataLoader with 8 workers. slowfs' own counts must say that " +
		"every file was opened once and every byte read once by rankpool. The first row is what slowfs " +
		"can do without limits, with 64 threads.",
	named:   true,
	measure: ratios((*bench).staging),
}

var stageSection = section{
	name: "stage",
	about: "rankpool stage of 20,000 files of 1 KB into memory, by one rank, from slowfs, set to " +
		"1 ms for each lookup, open and check of attributes, none of which it lets the kernel keep. " +
		"The copies are compared with the files.",
	named:   true,
	measure: ratios((*bench).stage),
}

// stage measures what staging small files costs a metadata server.
func (b *bench) stage() ([]row, error) {
	samples := 20_000
	if b.quick {
		samples = 1_000
	}
	e, end, err := b.emulate(samples, 1_000,
		slowfs.Config{OpenLatency: time.Millisecond, StatLatency: time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer end()
	var took time.Duration
	_, err = b.copied(func(into string) error {
		began := time.Now()
		err := runAll(exec.Command(b.tool, "stage", "--data", e.Dir(), "--dest", into, "--quiet"))
		took = time.Since(began)
		if err != nil {
			return err
		}
		if err := e.readOnce(); err != nil {
			return err
		}
		return runAll(exec.Command("diff", "-r", "-x", ".rankpool-*", filepath.Join(b.dir, "source"),
			into))
	})
	if err != nil {
		return nil, err
	}
	calls := float64(e.Stats().Stats) / float64(samples)
	return []row{
		plainRow(fmt.Sprintf("stage, %d × 1 KB, 1 ms a metadata request", samples), secondsText(took),
			"", took.Seconds(), 5, "5 s"),
		plainRow("the same, lookups and checks a file", fmt.Sprintf("%.2f", calls), "", calls, 3.05,
			"3.05"),
	}, nil
}

var pfsSection = section{
	name: "pfs",
	about: "a cold epoch of the same files on the same storage by 4 trainers whose steps only " +
		"sleep, next to the larger of the steps' time and the files' bytes over the bandwidth; " +
		"with steps that take as long as the bytes, and 1.5 times as long.",
	named:   true,
	measure: ratios((*bench).pfs),
}

// pfsSize returns the number and size of the files on the emulated storage.
func (b *bench) pfsSize() (samples, sampleBytes int) {
	if b.quick {
		return 1_000, 110_000
	}
	return 20_000, 110_000
}

func (b *bench) staging() ([]row, error) {
	samples, sampleBytes := b.pfsSize()
	e, end, err := b.emulate(samples, sampleBytes, slowfs.Config{})
	if err != nil {
		return nil, err
	}
	defer func() { end() }()
	rate, err := b.readRate(e)
	if err != nil {
		return nil, err
	}
	rows := []row{{what: "slowfs without limits, 64 readers", other: rate}}
	b.unmount()
	if e.Server, err = b.mount(filepath.Join(b.dir, "source"), e.Dir(), slowPFS); err != nil {
		return rows, err
	}
	took, reading, err := b.epoch(e, pfsRanks, 0)
	if err != nil {
		return rows, err
	}
	got, gotReading := float64(e.bytes())/took.Seconds(), float64(e.bytes())/reading.Seconds()
	what := fmt.Sprintf("cold epoch, %d × 110 KB, 4 ranks / set bandwidth", samples)
	rows = append(rows,
		ratioRow(what, rateText(got), rateText(pfsBandwidth), got/pfsBandwidth, atLeast, 0.95),
		ratioRow("the same, from the first read to the last", rateText(gotReading),
			rateText(pfsBandwidth), gotReading/pfsBandwidth, none, 0))
	for _, other := range others {
		took, err := other.read(b, e)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", other.name, err)
		}
		got := float64(e.bytes()) / took.Seconds()
		rows = append(rows, row{
			what:  "the same, " + other.name + " / set bandwidth",
			other: rateText(got), ratio: ratioText(got / pfsBandwidth),
		})
	}
	return rows, nil
}

// others are the usual ways to read such a data set without rankpool; each returns its duration.
var others = []struct {
	name string
	read func(*bench, *emulated) (time.Duration, error)
}{
	{"cp -r", func(b *bench, e *emulated) (time.Duration, error) {
		return b.copied(func(into string) error {
			return runAll(exec.Command("cp", "-r", e.Dir(), into))
		})
	}},
	{"rsync -a", func(b *bench, e *emulated) (time.Duration, error) {
		return b.copied(func(into string) error {
			return runAll(exec.Command("rsync", "-a", e.Dir(), into))
		})
	}},
	{"tar | tar", func(b *bench, e *emulated) (time.Duration, error) {
		return b.copied(func(into string) error {
			pack, unpack := exec.Command("tar", "cf", "-", "-C", e.Dir(), "."),
				exec.Command("tar", "xf", "-", "-C", into)
			between, err := pack.StdoutPipe()
			if err != nil {
				return err
			}
			unpack.Stdin = between
			return runAll(pack, unpack)
		})
	}},
	{"DataLoader, 8 workers", func(b *bench, e *emulated) (time.Duration, error) {
		return b.dataLoader(e)
	}},
}

// copied measures a copy into a new folder in memory, and removes it.
func (b *bench) copied(to func(into string) error) (time.Duration, error) {
	into := filepath.Join(b.dir, "copy")
	if err := os.MkdirAll(into, 0o700); err != nil {
		return 0, err
	}
	defer remove(into)
	began := time.Now()
	err := to(into)
	return time.Since(began), err
}

// runAll runs commands in parallel.
func runAll(commands ...*exec.Cmd) error {
	said := make([]bytes.Buffer, len(commands))
	for i, c := range commands {
		c.Stderr = &said[i]
		if err := c.Start(); err != nil {
			return err
		}
	}
	var failed error
	for i := len(commands) - 1; i >= 0; i-- { // The last one reads the output of the first one.
		if err := commands[i].Wait(); err != nil {
			failed = fmt.Errorf("%s: %w\n%.500s", commands[i], err, said[i].Bytes())
		}
	}
	return failed
}

// dataLoader measures dataloader.py, without the start of Python.
func (b *bench) dataLoader(e *emulated) (time.Duration, error) {
	read := exec.Command(b.python, "benchmarks/dataloader.py", e.Dir())
	var text bytes.Buffer
	read.Stdout = &text
	if err := runAll(read); err != nil {
		return 0, err
	}
	var result struct {
		Seconds float64
		Bytes   int64
	}
	if err := json.Unmarshal(text.Bytes(), &result); err != nil {
		return 0, err
	}
	if result.Bytes != e.bytes() {
		return 0, fmt.Errorf("it read %d bytes of %d", result.Bytes, e.bytes())
	}
	return time.Duration(result.Seconds * float64(time.Second)), nil
}

// pfs compares epochs whose steps take time with the bound for any reader.
func (b *bench) pfs() ([]row, error) {
	samples, sampleBytes := b.pfsSize()
	e, end, err := b.emulate(samples, sampleBytes, slowPFS)
	if err != nil {
		return nil, err
	}
	defer end()
	reading := time.Duration(float64(e.bytes()) / pfsBandwidth * float64(time.Second))
	steps := (samples + pfsRanks*pfsBatch - 1) / (pfsRanks * pfsBatch)
	var rows []row
	for _, times := range []float64{1, 1.5} {
		step := time.Duration(times * float64(reading) / float64(steps))
		bound := max(reading, time.Duration(steps)*step)
		took, _, err := b.epoch(e, pfsRanks, step)
		if err != nil {
			return rows, err
		}
		what := fmt.Sprintf("cold epoch, steps %v × the reading / max(steps, reading)", times)
		rows = append(rows, ratioRow(what, secondsText(took), secondsText(bound),
			took.Seconds()/bound.Seconds(), atMost, 1.05))
	}
	return rows, nil
}

func secondsText(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// readRate measures how fast many threads read all files, in another process.
func (b *bench) readRate(e *emulated) (string, error) {
	var bytesPerSecond float64
	if err := inChild(nil, &bytesPerSecond, "read", e.Dir(), "64"); err != nil {
		return "", err
	}
	return rateText(bytesPerSecond), e.readOnce()
}

// readChild reads all files of a data set with several goroutines, and returns bytes per second.
func readChild(args []string) (any, error) {
	readers, err := strconv.Atoi(args[1])
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(args[0], "*", "*.bin"))
	if err != nil {
		return nil, err
	}
	work := make(chan string, len(paths))
	for _, path := range paths {
		work <- path
	}
	close(work)
	var total atomic.Int64
	var failed atomic.Value
	var all sync.WaitGroup
	began := time.Now()
	for range readers {
		all.Go(func() {
			for path := range work {
				n, err := readThrough(path)
				if err != nil {
					failed.Store(err)
				}
				total.Add(n)
			}
		})
	}
	all.Wait()
	if err, ok := failed.Load().(error); ok {
		return nil, err
	}
	return float64(total.Load()) / time.Since(began).Seconds(), nil
}

// readThrough reads a file to its end, and returns its size.
func readThrough(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f},
		make([]byte, 128<<10))
}
