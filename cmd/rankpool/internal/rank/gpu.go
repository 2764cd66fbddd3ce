package rank

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"rankpool/mpicache/stats"
	"rankpool/nvml"
	"rankpool/slurm"
)

const (
	// gpuPeriod is how often GPUs are read. The driver averages utilisation over a period of at
	// most a second.
	gpuPeriod = time.Second
	// pciePeriod is how often the PCIe throughput of one GPU, the next in turn, is read. The call
	// takes 40 ms, so that even a driver that spins meanwhile uses 0.4 % of a core.
	pciePeriod = 10 * time.Second
	// gpuStale is the maximum age of a reading; an older one means that the driver hangs.
	gpuStale = 5 * time.Second
)

// A gpuDevice is what the sampler reads of a GPU: an nvml.Device, or a test's fake.
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
	State  stats.GPU
}

// A gpuSampler reads the node's GPUs once a second, in a separate goroutine because a driver may be
// slow, and matches their idle time with the time that training waited. A nil sampler has no GPUs.
type gpuSampler struct {
	clock  func() time.Time
	pcieAt time.Time     // when PCIe is read next, by sample
	pcie   int           // index of the GPU whose PCIe throughput is read next
	opened chan struct{} // closed when the GPUs are known

	mu      sync.Mutex   // guards what follows; it is not held while the driver is asked
	gpus    []sampledGPU // written by the goroutine only; nil until the driver has reported any
	read    time.Time    // when the newest reading was made
	pending idleInterval // read since the last call of Snapshot
	joined  idleJoin
	stall   float64 // seconds, summed over trainers, accounted so far
}

// sampleGPUs begins to read the GPUs that this process's environment allows, with the library at
// path, until ctx ends. It returns nil if there are none. It does not wait for the driver, which
// may hang: Snapshot returns no GPUs until the driver has reported them. late fires when it should
// have done so.
func sampleGPUs(
	ctx context.Context, path string, late <-chan time.Time, log *slog.Logger,
) *gpuSampler {
	may := slurm.DetectGPUs(os.LookupEnv)
	if may.Count == 0 {
		return nil
	}
	s := &gpuSampler{clock: time.Now, opened: make(chan struct{})}
	go func() {
		select {
		case <-s.opened:
		case <-ctx.Done():
		case <-late:
			log.Warn("the NVIDIA driver does not answer, so no GPUs are read: see whether nvidia-smi " +
				"works on this node")
		}
	}()
	go func() { // it hangs where a call of the driver does, and ends with the process
		library := s.openLibrary(ctx, path, may, log)
		if library == nil {
			return
		}
		defer func() { _ = library.Close() }() // the process ends
		ticker := time.NewTicker(gpuPeriod)
		defer ticker.Stop()
		s.run(ctx, ticker.C)
	}()
	return s
}

// openLibrary finds the GPUs that may names, with the library at path, and closes opened. It
// returns nil if there are none, or ctx has ended meanwhile; otherwise the caller closes the
// library.
func (s *gpuSampler) openLibrary(
	ctx context.Context, path string, may slurm.GPUs, log *slog.Logger,
) *nvml.Library {
	defer close(s.opened)
	library, err := nvml.Open(path)
	if err == nil && ctx.Err() != nil {
		_ = library.Close() // it was not used
	}
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, nvml.ErrNotFound):
		log.Debug("no GPUs are read", "reason", err)
		return nil
	case err != nil:
		log.Warn("no GPUs are read", "error", err)
		return nil
	}
	gpus, err := findGPUs(library, may)
	if err != nil && ctx.Err() == nil {
		log.Warn("not all GPUs are read", "error", err)
	}
	if len(gpus) == 0 {
		_ = library.Close() // it was not used
		return nil
	}
	s.use(gpus)
	return library
}

// use sets the GPUs to read. It must be called before run.
func (s *gpuSampler) use(gpus []sampledGPU) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpus, s.pcieAt = gpus, s.clock()
	s.pending, s.joined = newIdleInterval(len(gpus)), newIdleJoin(len(gpus))
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
	states := make([]stats.GPU, len(s.gpus))
	for i := range s.gpus {
		states[i] = readGPU(s.gpus[i].device, s.gpus[i].State)
	}
	s.readPCIe(states)

	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	// Do not account a long interval between two readings: a single reading says nothing about it.
	seconds := now.Sub(s.read).Seconds()
	if s.read.IsZero() || seconds > gpuStale.Seconds() {
		seconds = 0
	}
	s.read = now
	s.pending.seconds += seconds
	for i, state := range states {
		s.gpus[i].State = state
		if state.Utilisation != nil {
			s.pending.sampled[i] += seconds
			s.pending.idle[i] += (1 - *state.Utilisation) * seconds
		}
	}
}

// readGPU reads device; identity and PCIe are copied from before.
func readGPU(device gpuDevice, before stats.GPU) stats.GPU {
	now := stats.GPU{
		UUID: before.UUID, Name: before.Name, Index: before.Index,
		Utilisation: valueOrNil(device.Utilisation()), PowerWatts: valueOrNil(device.Power()),
		Celsius:      valueOrNil(device.Temperature()),
		ReceiveBytes: before.ReceiveBytes, SendBytes: before.SendBytes,
	}
	if memory, err := device.Memory(); err == nil {
		now.MemoryUsedBytes, now.MemoryTotalBytes = &memory.UsedBytes, &memory.TotalBytes
	}
	return now
}

// valueOrNil returns a pointer to value, or nil if err is not nil.
func valueOrNil(value float64, err error) *float64 {
	if err != nil {
		return nil
	}
	return &value
}

// readPCIe reads the PCIe throughput of the next GPU, at most once per interval.
func (s *gpuSampler) readPCIe(states []stats.GPU) {
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

// Snapshot returns the newest state of the GPUs, in the order of findGPUs, and accounts the time
// since the previous call: stallSeconds is how long the node's trainers have waited for samples so
// far, summed over them (NaN: not known), and trainers is how many there are now. Time without
// trainers is not accounted. The caller owns the result; it must not write to what the result
// points to. Snapshot may be called from any goroutine, and does not call the driver. It returns
// nil while no GPU is known.
func (s *gpuSampler) Snapshot(stallSeconds float64, trainers int) []stats.GPU {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gpus) == 0 {
		// time that training waits before GPUs are read is not accounted
		s.stall = stallSeconds
		return nil
	}
	s.account(stallSeconds, trainers)
	stale := s.clock().Sub(s.read) > gpuStale
	states := make([]stats.GPU, len(s.gpus))
	for i, g := range s.gpus {
		states[i] = g.State
		if stale {
			states[i] = stats.GPU{UUID: g.State.UUID, Name: g.State.Name, Index: g.State.Index}
		}
		sum := s.joined.sums[i]
		states[i].SampledSeconds, states[i].IdleSeconds, states[i].WaitedSeconds = sum.sampled,
			sum.idle, stats.Measured(sum.waited)
	}
	return states
}

// account matches the readings since the previous call with the time that training has waited since
// then.
func (s *gpuSampler) account(stallSeconds float64, trainers int) {
	if s.pending.seconds == 0 {
		return // nothing was read: leave the waiting to the next call
	}
	if trainers > 0 {
		s.pending.stalled = max(0, stallSeconds-s.stall) / float64(trainers)
		s.joined.add(s.pending)
	}
	s.stall = stallSeconds
	s.pending = newIdleInterval(len(s.gpus))
}
