package rank

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"rankpool/cmd/internal/outlet"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/mpicache"
	"rankpool/mpicache/stats"
	"rankpool/nvml"
	"rankpool/slurm"
)

// What a rank reports about itself: messages, metrics, and the state of its machine.

// An observation is how others can watch the rank.
type observation struct {
	opt    *Options
	job    slurm.Job
	folder *ownFolder
	logger *slog.Logger
	rank   int

	// nil if there are none, or the first rank of this machine reads them
	gpus    *gpuSampler
	node    atomic.Pointer[mpicache.Node] // whose statistics are shown; nil: it does not serve yet
	metrics *metrics.Server               // nil: none
	log     *outlet.Outlet                // the run log; nil: this rank writes none
}

func (r *process) newLogger() *slog.Logger {
	host, rank, speaker := hostname(), r.transport.Rank(), ""
	if r.transport.Size() > 1 {
		speaker = fmt.Sprintf("rank %d on %s", rank, host)
	}
	var fields []slog.Attr
	for _, id := range []slog.Attr{
		slog.String("job", r.job.JobID), slog.String("step", r.job.StepID),
	} {
		if id.Value.String() != "" {
			fields = append(fields, id)
		}
	}
	return messages.Limit(messages.New(outlet.Stderr, messages.Options{
		Format: r.opt.LogFormat, Level: r.opt.level(), Speaker: speaker,
		Fields: append(fields, slog.Int("rank", rank), slog.String("host", host)),
	}))
}

func (o *CacheOptions) level() slog.Level {
	if o.Verbose {
		return slog.LevelDebug
	}
	return messages.LevelNotice
}

func hostname() string {
	name, _ := os.Hostname() // "" if unknown
	return name
}

// start begins to export metrics and, in the first rank of the node, to read the node's
// GPUs.
func (o *observation) start(ctx context.Context) error {
	if world.Find(os.Getenv).LocalTask == 0 {
		o.gpus = sampleGPUs(ctx, nvml.DefaultPath, time.After(gpuStale), o.logger)
	}
	labels := metrics.Labels{
		Job:  metricsJob(o.job, o.opt.Session),
		Rank: o.rank, Host: hostname(),
	}
	read := func() stats.Reading {
		if n := o.node.Load(); n != nil {
			return n.Stats()
		}
		return stats.Reading{
			Rank: labels.Rank, Host: labels.Host, Progress: stats.Progress{Epoch: -1},
		}
	}
	return o.startMetrics(labels, read)
}

// observe is mpicache.Config.Observe.
func (r *process) observe(stallSeconds float64, trainers int) stats.Machine {
	var m stats.Machine
	for _, set := range r.sets {
		s := set.fetcher.Stats()
		m.StorageReads += s.Requests
		m.StorageBytes += s.StorageBytes
		m.StorageErrors += s.Errors
		m.StorageSeconds += float64(s.Nanoseconds) / 1e9
	}
	memory := r.memory.readMemory()
	m.MemoryFreeBytes, m.MemoryLimit = memory.FreeBytes, memory.Limit
	m.GPUs = r.observed.gpus.Snapshot(stallSeconds, trainers)
	return m
}

func (m *memoryUse) readMemory() slurm.Memory {
	return slurm.ReadMemory(m.readFile, os.Getenv, m.slabBytes.Load())
}

// Bounds of the memory that is kept free while training runs, a 64th of the limit: as much as a
// process can fill until the next poll, but not so much that the cache would miss it.
const (
	reserveShare    = 64
	leastReserve    = 64 << 20
	greatestReserve = 2 << 30
)

// reserveOf is how much of a limit is kept free while training runs.
func reserveOf(memory slurm.Memory) int64 {
	return min(max(memory.LimitBytes/reserveShare, leastReserve), greatestReserve)
}

const (
	// fillRate is the highest rate in bytes a second at which the processes of a node are assumed
	// to fill memory. Memory that is far from its limit need not be polled before it can be full.
	// Chosen: a core of today fills 1 to 3 GB/s of new pages.
	fillRate = 8 << 30
	// Bounds of the time between two polls of the memory: in the shortest, a process fills 10 to 30
	// MB. Near the limit, but with little growth, the interval is longer, since a poll takes 0.2 to
	// 0.5 ms of a core: if a process then begins to fill memory, the next poll comes after 50 MB at 1
	// GB/s, out of a reserve of at least 64 MiB.
	leastLook, calmLook, mostLook = 10 * time.Millisecond, 50 * time.Millisecond, time.Second
	// less growth than this between two polls counts as idle.
	calmBytes = 1 << 20
)

// giveBack is mpicache.Config.GiveBack.
func (m *memoryUse) giveBack(slabBytes int64) (bytes int64, again time.Duration) {
	m.noteSlab(slabBytes)
	m.slabBytes.Store(slabBytes * int64(m.ranksHere))
	memory := m.readMemory()
	filled := m.freeBefore - memory.FreeBytes
	m.freeBefore = memory.FreeBytes
	return giveBack(memory, filled, m.ranksHere)
}

// giveBack returns how much each of the ranks of this machine should give back, and when to poll
// again. filledBytes is the growth since the last poll.
func giveBack(
	memory slurm.Memory, filledBytes int64, ranksHere int,
) (bytes int64, again time.Duration) {
	reserve := reserveOf(memory)
	if missing := reserve - memory.FreeBytes; missing > 0 {
		// half of the reserve more, so that this is not needed again at once
		return max(1, (missing+reserve/2)/int64(ranksHere)), leastLook
	}
	least := leastLook
	if filledBytes < calmBytes {
		least = calmLook
	}
	far := time.Duration(float64(memory.FreeBytes-reserve) / fillRate * float64(time.Second))
	return 0, min(max(far, least), mostLook)
}
