package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rankpool/benchmarks/slowfs"
)

// emulated is a data set on emulated storage.
type emulated struct {
	*slowfs.Server
	samples, sampleBytes int
}

// emulate creates a data set and mounts it as slow storage; the second result ends both.
func (b *bench) emulate(samples, sampleBytes int, config slowfs.Config) (*emulated, func(), error) {
	source, dir := filepath.Join(b.dir, "source"), filepath.Join(b.dir, "slow")
	if err := makeTree(source, samples, sampleBytes); err != nil {
		remove(source)
		return nil, nil, err
	}
	server, err := b.mount(source, dir, config)
	if err != nil {
		remove(source)
		return nil, nil, err
	}
	return &emulated{server, samples, sampleBytes}, func() {
		b.unmount()
		remove(source)
	}, nil
}

// mount mounts emulated storage, and unmounts it on an interrupt too.
func (b *bench) mount(source, dir string, config slowfs.Config) (*slowfs.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	server, err := slowfs.Mount(source, dir, config)
	if err == nil {
		b.mounted.Store(server)
	}
	return server, err
}

// unmount unmounts the emulated storage, if there is any.
func (b *bench) unmount() {
	if server := b.mounted.Swap(nil); server != nil {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "benchmarks:", err)
		}
	}
}

// bytes returns the size of the data set.
func (e *emulated) bytes() int64 { return int64(e.samples) * int64(e.sampleBytes) }

// readOnce returns an error unless every file was opened once and every byte read once since the
// last ResetStats.
func (e *emulated) readOnce() error {
	stats := e.Stats()
	if twice := stats.ReadTwice(); twice != nil {
		return fmt.Errorf("%d of %d files were read twice, %s among them", len(twice), e.samples,
			twice[0])
	}
	if stats.Opens != int64(e.samples) || len(stats.Files) != e.samples {
		return fmt.Errorf("%d files were opened, %d times, and the data set has %d", len(stats.Files),
			stats.Opens, e.samples)
	}
	if stats.Bytes != e.bytes() {
		return fmt.Errorf("%d bytes were read, and the data set has %d", stats.Bytes, e.bytes())
	}
	return nil
}

// epochResult is what epoch.py writes for a trainer.
type epochResult struct {
	Began, Ended float64
	Samples      int
	Bytes        int64
	Steps        int
}

// epoch trains one cold epoch on emulated storage with several ranks and a trainer each, checks
// that every sample was read once, and returns how long it took, from the first trainer's start to
// the last one's end, and from the first read of storage to the last.
func (b *bench) epoch(e *emulated, ranks int, step time.Duration) (
	took, reading time.Duration, err error,
) {
	out := filepath.Join(b.dir, "result")
	e.ResetStats()
	flags := []string{"--data", e.Dir(), "--memory", "100%", "--ranks", fmt.Sprint(ranks)}
	if err := b.runTool(flags, "epoch.py", "--out", out, "--step-seconds",
		fmt.Sprint(step.Seconds())); err != nil {
		return 0, 0, err
	}
	var all epochResult
	for rank := range ranks {
		var r epochResult
		if err := readJSON(fmt.Sprintf("%s.%d", out, rank), &r); err != nil {
			return 0, 0, err
		}
		if rank == 0 {
			all.Began = r.Began
		}
		all.Began, all.Ended = min(all.Began, r.Began), max(all.Ended, r.Ended)
		all.Samples += r.Samples
		all.Bytes += r.Bytes
	}
	if all.Samples != e.samples || all.Bytes != e.bytes() {
		return 0, 0, fmt.Errorf("the trainers had %d samples of %d bytes, and the data set has %d of %d",
			all.Samples, all.Bytes, e.samples, e.bytes())
	}
	if err := e.readOnce(); err != nil {
		return 0, 0, fmt.Errorf("rankpool has not read each sample once: %w", err)
	}
	stats := e.Stats()
	return time.Duration((all.Ended - all.Began) * float64(time.Second)),
		stats.LastRead - stats.FirstRead, nil
}
