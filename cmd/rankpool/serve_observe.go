package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/mpicache"
	"rankpool/slurm"
)

// What a rank tells about itself: messages, metrics, and the state of its machine.

func (r *rankProcess) newLogger() *slog.Logger {
	job := slurm.Detect(os.Getenv)
	return newLogger(os.Stderr, logOptions{
		format: r.opt.logFormat, level: r.opt.level(), job: job.JobID, step: job.StepID, rank: r.transport.Rank(), host: hostname(),
	})
}

func hostname() string {
	name, _ := os.Hostname() // "" where it has none
	return name
}

// startObserving begins to read the node's GPUs, in the first rank of the node, and to show metrics.
func (r *rankProcess) startObserving() (err error) {
	ctx, end := context.WithCancel(context.Background())
	r.endGPUs = end
	if findPlace(os.Getenv).localTask == 0 {
		r.gpus = startGPUSampler(ctx, r.logger)
	}
	labels := metrics.Labels{Job: metricsJob(slurm.Detect(os.Getenv), r.opt.session), Rank: r.transport.Rank(), Host: hostname()}
	r.endMetrics, err = startMetrics(r.opt.metrics, r.opt.metricsFile, labels, func() mpicache.RankStats {
		if n := r.stats.Load(); n != nil {
			return n.Stats()
		}
		return mpicache.RankStats{Rank: labels.Rank, Host: labels.Host, Epoch: -1}
	}, r.logger, os.Stderr)
	return err
}

func (r *rankProcess) endObserving() {
	if r.endMetrics != nil {
		r.endMetrics()
	}
	if r.endGPUs != nil {
		r.endGPUs()
	}
}

// observe is mpicache.Config.Observe.
func (r *rankProcess) observe(stallSeconds float64, trainers int) mpicache.Machine {
	var m mpicache.Machine
	for _, f := range r.fetchers {
		s := f.Stats()
		m.StorageReads += s.Requests
		m.StorageBytes += s.StorageBytes
		m.StorageErrors += s.Errors
		m.StorageSeconds += float64(s.Nanoseconds) / 1e9
	}
	memory := r.readMemory()
	m.MemoryFreeBytes, m.MemoryLimit = memory.FreeBytes, memory.Limit
	m.GPUs = r.gpus.Snapshot(stallSeconds, trainers)
	return m
}

func (r *rankProcess) readMemory() slurm.Memory {
	return slurm.ReadMemory(os.ReadFile, os.Getenv, r.slabBytes)
}

// Bounds of the memory that is kept free while training runs, a 64th of the limit: what a process can fill in the tenth of a second until
// the next look, and not so much that the cache misses it.
const (
	reserveShare    = 64
	leastReserve    = 64 << 20
	greatestReserve = 2 << 30
)

// fillRate is how many bytes a second the processes of a node are taken to fill at the most. Memory that is far from its limit need not be
// looked at before it can be full. Chosen: a core of today fills 1 to 3 GB/s of new pages.
const fillRate = 8 << 30

// giveBack is mpicache.Config.GiveBack.
func (r *rankProcess) giveBack() int64 {
	now := time.Now()
	if now.Before(r.lookAgain) {
		return 0
	}
	memory := r.readMemory()
	reserve := min(max(memory.LimitBytes/reserveShare, leastReserve), greatestReserve)
	missing := slurm.GiveBack(memory, reserve)
	if missing == 0 {
		r.lookAgain = now.Add(min(time.Second, time.Duration(float64(memory.FreeBytes-reserve)/fillRate*float64(time.Second))))
		return 0
	}
	return max(1, (missing+reserve/2)/int64(r.ranksHere)) // a half more, so that it need not come again at once
}
