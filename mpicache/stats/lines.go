package stats

import "time"

// A Reading is what one rank has done since it began, and its present state. Sums never fall while
// the rank lives; a restarted rank begins at 0.
type Reading struct {
	// of its line in the run log
	Event string    `json:"event,omitempty"`
	Time  time.Time `json:"time,omitzero"`

	Rank     int     `json:"rank"`
	Host     string  `json:"host"`
	Seconds  float64 `json:"seconds"`  // since the rank began
	Trainers int     `json:"trainers"` // training processes that are connected now

	Progress // and PeerBytes

	// memory for samples; less than at the start if it has shrunk
	SlabBytes     int64 `json:"slab_bytes"`
	UsedBytes     int64 `json:"used_bytes"` // of the slab
	Residents     int64 `json:"residents"`  // samples that stay in memory
	ResidentBytes int64 `json:"resident_bytes"`

	// Kept of the previous rank's KeptOf residents were in its memory when this rank took it over; 0
	// of 0 if this rank began with empty memory
	Kept   int64 `json:"kept"`
	KeptOf int64 `json:"kept_of"`

	// Ready is the share of the trainers' next samples within the staging window that is in memory, in
	// [0, 1].
	Ready float64 `json:"ready"`
	// the next epoch's plan is there, so the window extends into it
	NextPlanned bool `json:"next_planned"`

	Machine Machine `json:"machine"`

	// Jobs are the trainings on this rank, if one of them has a job name or a measured benefit;
	// otherwise there are none.
	Jobs []Job `json:"jobs,omitempty"`
}

// Totals returns all that the rank has counted, its storage and its GPUs included.
func (r *Reading) Totals() Sums {
	s, m := r.Sums, &r.Machine
	s[ReadCount], s[ReadBytes] = float64(m.StorageReads), float64(m.StorageBytes)
	s[ReadErrors], s[ReadSeconds] = float64(m.StorageErrors), m.StorageSeconds
	for _, g := range m.GPUs {
		s[GPUSampled] += g.SampledSeconds
		s[GPUIdle] += g.IdleSeconds
		s[GPUWaited] += float64(g.WaitedSeconds)
	}
	return s
}

// Progress is how far training is on a rank, and what the trainers there have been given since the
// rank began.
type Progress struct {
	Data    string `json:"data"`    // the data set in training, "" before the first epoch
	Epoch   int    `json:"epoch"`   // -1 before the first
	Batch   int    `json:"batch"`   // how many the slowest trainer here has been given
	Batches int    `json:"batches"` // of the epoch
	Sums    `json:"-"`
}

// A Job is the progress of one of several trainings. It is no longer listed when it has ended; the
// rank's sums still include what it was given.
type Job struct {
	Name string `json:"name"` // "": the training without a name
	Progress

	Benefit // as measured last
}

// A Benefit is how long a global batch takes with the cache, and how long if all samples are read
// from storage; 0: not measured.
type Benefit struct {
	BatchSeconds         float64 `json:"batch_seconds,omitempty"`
	UncachedBatchSeconds float64 `json:"uncached_batch_seconds,omitempty"`
}

// Ratio is how many times as long a batch takes without the cache; NaN: not measured.
func (b Benefit) Ratio() float64 { return Ratio(b.UncachedBatchSeconds, b.BatchSeconds) }

// Join merges what another rank measured: a step takes as long as on the slowest rank.
func (b *Benefit) Join(other Benefit) {
	b.BatchSeconds = max(b.BatchSeconds, other.BatchSeconds)
	b.UncachedBatchSeconds = max(b.UncachedBatchSeconds, other.UncachedBatchSeconds)
}

// Machine is what the rank's process knows about its storage, memory and GPUs. Whoever configures
// the node measures it.
type Machine struct {
	StorageReads  int64 `json:"storage_reads"` // reads by this rank, including those ahead of use
	StorageBytes  int64 `json:"storage_bytes"`
	StorageErrors int64 `json:"storage_errors"`
	// summed over the requests: divided by StorageReads the mean latency
	StorageSeconds float64 `json:"storage_seconds"`

	MemoryFreeBytes int64  `json:"memory_free_bytes"` // until the nearest limit
	MemoryLimit     string `json:"memory_limit"`      // which limit that is, in words

	GPUs []GPU `json:"gpus,omitempty"`
}

// GPU is the state of one GPU that the job may use. nil: not available.
type GPU struct {
	UUID  string `json:"uuid"`
	Name  string `json:"name,omitempty"`
	Index int    `json:"index"` // NVML's
	// share of the last sampling period in which a kernel ran, in [0, 1]
	Utilisation      *float64 `json:"utilisation"`
	MemoryUsedBytes  *int64   `json:"memory_used_bytes"`
	MemoryTotalBytes *int64   `json:"memory_total_bytes"`
	PowerWatts       *float64 `json:"power_watts"`
	Celsius          *float64 `json:"celsius"`
	ReceiveBytes     *float64 `json:"pcie_receive_bytes_per_second"`
	SendBytes        *float64 `json:"pcie_send_bytes_per_second"`

	// Since the rank began: seconds it was sampled, seconds of those it was idle, and seconds of
	// those in which training waited for samples.
	SampledSeconds float64  `json:"sampled_seconds"`
	IdleSeconds    float64  `json:"idle_seconds"`
	WaitedSeconds  Measured `json:"waited_seconds"`
}

// An Epoch is what trainers were given in an epoch, summed over them; but StallSeconds are their
// mean, and TrainSeconds the slowest trainer's. StorageBytes include FallbackBytes and what was
// read to be evaluated.
type Epoch struct {
	// of its line in the run log
	Event string    `json:"event,omitempty"`
	Time  time.Time `json:"time,omitzero"`
	Data  string    `json:"data,omitempty"`
	Job   string    `json:"job,omitempty"` // the training's name, "" for the one without

	Epoch   int `json:"epoch"`
	Sums    `json:"-"`
	Benefit                    // if it was measured in this epoch
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Merge adds another rank's part of the epoch, or another epoch.
func (e *Epoch) Merge(d *Epoch) {
	longest := max(e.Sums[TrainSeconds], d.Sums[TrainSeconds])
	e.Add(d.Sums)
	e.Sums[TrainSeconds] = longest
	e.Join(d.Benefit)
	for name, v := range d.Metrics {
		if e.Metrics == nil {
			e.Metrics = map[string]float64{}
		}
		e.Metrics[name] = v
	}
}

// A Summary is the last line of a run: the sum over its epochs.
type Summary struct {
	Whole
	Epoch
}

// Whole describes a whole run.
type Whole struct {
	Ranks       int     `json:"ranks"`
	Epochs      int     `json:"epochs"`
	WallSeconds float64 `json:"wall_seconds"`
}
