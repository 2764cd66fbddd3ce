package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"rankpool/mpicache"
	"rankpool/nvml"
	"rankpool/slurm"
)

const (
	// gpuPeriod is how often GPUs are read. The driver's own utilisation is of a period of at most a second.
	gpuPeriod = time.Second
	// pciePeriod is how often the throughput over PCIe of one GPU, the next in turn, is read: a call of 40 ms, so that even a driver
	// that spins meanwhile takes 0.4 % of a core.
	pciePeriod = 10 * time.Second
	// gpuStale is how old a reading may be: a driver that hangs has told nothing since.
	gpuStale = 5 * time.Second
)

// A gpuDevice is what the sampler reads of a GPU: an nvml.Device, or a test's.
type gpuDevice interface {
	Utilisation() (float64, error)
	Memory() (nvml.Memory, error)
	Power() (float64, error)
	Temperature() (float64, error)
	PCIe() (nvml.Throughput, error)
}

// A sampledGPU is a GPU that the job may use, with its newest reading.
type sampledGPU struct {
	device gpuDevice
	state  mpicache.GPU
}

// A gpuSampler reads the node's GPUs once a second, in a goroutine of its own because a driver may take its time, and joins
// their idle time with the time that training waited. A nil sampler has no GPUs.
type gpuSampler struct {
	clock  func() time.Time
	pcieAt time.Time // when PCIe is read next, by sample
	pcie   int       // of which GPU

	mu      sync.Mutex   // guards what follows; it is not held while the driver is asked
	gpus    []sampledGPU // sample alone writes
	read    time.Time    // when the newest reading was made
	pending idleInterval // read since the last call of Snapshot
	joined  idleJoin
	stall   float64 // seconds, the sum over trainers that is joined already
}

// startGPUSampler reads the GPUs that this process's environment lets it use until ctx ends. It returns nil where there are none.
func startGPUSampler(ctx context.Context, log *slog.Logger) *gpuSampler {
	return sampleGPUs(ctx, nvml.DefaultPath, log)
}

// sampleGPUs is startGPUSampler with the library at path.
func sampleGPUs(ctx context.Context, path string, log *slog.Logger) *gpuSampler {
	library, err := nvml.Open(path)
	if errors.Is(err, nvml.ErrNotFound) {
		log.Debug("no GPUs are read", "reason", err)
		return nil
	}
	if err != nil {
		log.Warn("no GPUs are read", "error", err)
		return nil
	}
	gpus, err := findGPUs(library, slurm.DetectGPUs(os.LookupEnv))
	if err != nil {
		log.Warn("not all GPUs are read", "error", err)
	}
	if len(gpus) == 0 {
		_ = library.Close() // it was not used
		return nil
	}
	s := newGPUSampler(gpus, time.Now)
	go func() {
		defer func() { _ = library.Close() }() // the process ends
		ticker := time.NewTicker(gpuPeriod)
		defer ticker.Stop()
		s.run(ctx, ticker.C)
	}()
	return s
}

// newGPUSampler returns a sampler of gpus that reads nothing before run.
func newGPUSampler(gpus []sampledGPU, clock func() time.Time) *gpuSampler {
	return &gpuSampler{
		clock: clock, gpus: gpus, pcieAt: clock(),
		pending: newIdleInterval(len(gpus)), joined: newIdleJoin(len(gpus)),
	}
}

// run reads the GPUs at every tick until ctx ends.
func (s *gpuSampler) run(ctx context.Context, ticks <-chan time.Time) {
	for {
		s.sample()
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// sample reads the GPUs once. It has one caller.
func (s *gpuSampler) sample() {
	states := make([]mpicache.GPU, len(s.gpus))
	for i := range s.gpus {
		states[i] = readGPU(s.gpus[i].device, s.gpus[i].state)
	}
	s.readPCIe(states)

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	// What was not looked at for long is not accounted: one reading says nothing about it.
	seconds := now.Sub(s.read).Seconds()
	if s.read.IsZero() || seconds > gpuStale.Seconds() {
		seconds = 0
	}
	s.read = now
	s.pending.seconds += seconds
	for i, state := range states {
		s.gpus[i].state = state
		if state.Utilisation != nil {
			s.pending.sampled[i] += seconds
			s.pending.idle[i] += (1 - *state.Utilisation) * seconds
		}
	}
}

// readGPU returns what device tells now; identity and PCIe stay as in before.
func readGPU(device gpuDevice, before mpicache.GPU) mpicache.GPU {
	now := mpicache.GPU{
		UUID: before.UUID, Name: before.Name, Index: before.Index,
		Utilisation: told(device.Utilisation()), PowerWatts: told(device.Power()), Celsius: told(device.Temperature()),
		ReceiveBytes: before.ReceiveBytes, SendBytes: before.SendBytes,
	}
	if memory, err := device.Memory(); err == nil {
		now.MemoryUsedBytes, now.MemoryTotalBytes = &memory.UsedBytes, &memory.TotalBytes
	}
	return now
}

// told returns a pointer to value, nil when there is an error instead.
func told(value float64, err error) *float64 {
	if err != nil {
		return nil
	}
	return &value
}

// readPCIe reads the throughput of the GPU whose turn it is, when it is time.
func (s *gpuSampler) readPCIe(states []mpicache.GPU) {
	now := s.clock()
	if len(states) == 0 || now.Before(s.pcieAt) {
		return
	}
	s.pcieAt = now.Add(pciePeriod)
	state := &states[s.pcie]
	state.ReceiveBytes, state.SendBytes = nil, nil
	if moved, err := s.gpus[s.pcie].device.PCIe(); err == nil {
		state.ReceiveBytes, state.SendBytes = &moved.ReceiveBytes, &moved.SendBytes
	}
	s.pcie = (s.pcie + 1) % len(states)
}

// Snapshot returns the newest state of the GPUs, in the order of findGPUs, and accounts the time since the call before:
// stallSeconds is what the node's trainers have waited for samples so far, summed over them, and trainers is how many there are
// now. Time without trainers is not accounted. The result is the caller's; what it points to must not be written. It may be called
// from any goroutine, and asks no driver.
func (s *gpuSampler) Snapshot(stallSeconds float64, trainers int) []mpicache.GPU {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account(stallSeconds, trainers)
	stale := s.clock().Sub(s.read) > gpuStale
	states := make([]mpicache.GPU, len(s.gpus))
	for i, g := range s.gpus {
		states[i] = g.state
		if stale {
			states[i] = mpicache.GPU{UUID: g.state.UUID, Name: g.state.Name, Index: g.state.Index}
		}
		sum := s.joined.sums[i]
		states[i].SampledSeconds, states[i].IdleSeconds, states[i].WaitedSeconds = sum.sampled, sum.idle, sum.waited
	}
	return states
}

// account joins what was read since the call before with what training has waited since then.
func (s *gpuSampler) account(stallSeconds float64, trainers int) {
	if s.pending.seconds == 0 {
		return // nothing was read: the waiting is the next call's
	}
	if trainers > 0 {
		s.pending.stalled = max(0, stallSeconds-s.stall) / float64(trainers)
		s.joined.add(s.pending)
	}
	s.stall = stallSeconds
	s.pending = newIdleInterval(len(s.gpus))
}
