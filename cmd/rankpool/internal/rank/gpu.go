package rank

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
	State  mpicache.GPU
}

// A gpuSampler reads the node's GPUs once a second, in a goroutine of its own because a driver may take its time, and joins
// their idle time with the time that training waited. A nil sampler has no GPUs.
type gpuSampler struct {
	clock  func() time.Time
	pcieAt time.Time     // when PCIe is read next, by sample
	pcie   int           // of which GPU
	opened chan struct{} // is closed when it is known which GPUs there are

	mu      sync.Mutex   // guards what follows; it is not held while the driver is asked
	gpus    []sampledGPU // the goroutine alone writes; nil while the driver has not told of any
	read    time.Time    // when the newest reading was made
	pending idleInterval // read since the last call of Snapshot
	joined  idleJoin
	stall   float64 // seconds, the sum over trainers that is joined already
}

// startGPUSampler begins to read the GPUs that this process's environment lets it use, until ctx ends. It returns nil where that names
// none. It does not wait for the driver, which may hang: Snapshot has no GPUs until it has told of them.
func startGPUSampler(ctx context.Context, log *slog.Logger) *gpuSampler {
	return sampleGPUs(ctx, nvml.DefaultPath, time.After(gpuStale), log)
}

// sampleGPUs is startGPUSampler with the library at path, and a channel that gives something when the driver should have told.
func sampleGPUs(ctx context.Context, path string, late <-chan time.Time, log *slog.Logger) *gpuSampler {
	may := slurm.DetectGPUs(os.LookupEnv)
	if may.Count == 0 {
		return nil
	}
	s := newGPUSampler(nil, time.Now)
	go s.watchOpening(ctx, late, log)
	go func() { // it stays where a call of the driver does not return, and ends with the process
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

// watchOpening warns once when the driver does not tell which GPUs there are.
func (s *gpuSampler) watchOpening(ctx context.Context, late <-chan time.Time, log *slog.Logger) {
	select {
	case <-s.opened:
	case <-ctx.Done():
	case <-late:
		log.Warn("the NVIDIA driver does not answer, so no GPUs are read: see whether nvidia-smi works on this node")
	}
}

// openLibrary finds the GPUs that may names with the library at path, and closes opened. It returns nil where there are none, and when ctx
// has ended meanwhile; else the caller closes the library.
func (s *gpuSampler) openLibrary(ctx context.Context, path string, may slurm.GPUs, log *slog.Logger) *nvml.Library {
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
	gpus, err := FindGPUs(library, may)
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

// newGPUSampler returns a sampler of gpus that reads nothing before run.
func newGPUSampler(gpus []sampledGPU, clock func() time.Time) *gpuSampler {
	s := &gpuSampler{clock: clock, opened: make(chan struct{})}
	s.use(gpus)
	return s
}

// use makes gpus those that are read. It must come before run.
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
	states := make([]mpicache.GPU, len(s.gpus))
	for i := range s.gpus {
		states[i] = readGPU(s.gpus[i].device, s.gpus[i].State)
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
		s.gpus[i].State = state
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
// from any goroutine, and asks no driver. It is nil while no GPU is known.
func (s *gpuSampler) Snapshot(stallSeconds float64, trainers int) []mpicache.GPU {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.gpus) == 0 {
		s.stall = stallSeconds // what training waits before GPUs are read is not joined with anything
		return nil
	}
	s.account(stallSeconds, trainers)
	stale := s.clock().Sub(s.read) > gpuStale
	states := make([]mpicache.GPU, len(s.gpus))
	for i, g := range s.gpus {
		states[i] = g.State
		if stale {
			states[i] = mpicache.GPU{UUID: g.State.UUID, Name: g.State.Name, Index: g.State.Index}
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
