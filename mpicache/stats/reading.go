package stats

// A Reading is what one rank has done since it began, and its present state. Sums never fall while
// the rank lives; a restarted rank begins at 0.
type Reading struct {
	Rank     int     `json:"rank"`
	Host     string  `json:"host"`
	Seconds  float64 `json:"seconds"`  // since the rank began
	Trainers int     `json:"trainers"` // training processes that are connected now

	Progress

	PeerBytes int64 `json:"peer_bytes"` // received from other ranks' memory

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

// Progress is how far training is on a rank, and what the trainers there have been given since the
// rank began.
type Progress struct {
	Data    string `json:"data"`    // the data set in training, "" before the first epoch
	Epoch   int    `json:"epoch"`   // -1 before the first
	Batch   int    `json:"batch"`   // how many the slowest trainer here has been given
	Batches int    `json:"batches"` // of the epoch

	// in samples and bytes
	HitsLocal     int64 `json:"hits_local"`
	HitsRemote    int64 `json:"hits_remote"`
	TierHits      int64 `json:"tier_hits"` // of the hits
	StorageReads  int64 `json:"storage_reads"`
	StorageBytes  int64 `json:"storage_bytes"`
	FallbackReads int64 `json:"fallback_reads"`
	FallbackBytes int64 `json:"fallback_bytes"`
	Substituted   int64 `json:"substituted"`
	// of the reads, those of samples given in place of others
	SubstituteReads int64 `json:"substitute_reads"`
	// given to measure their losses, not to train on; not included above
	Evaluated      int64 `json:"evaluated"`
	EvaluatedReads int64 `json:"evaluated_reads"` // of these, read from storage
	// of a system that reads samples in packages, written beside training
	PackageReads      int64 `json:"package_reads"`
	PackageReadBytes  int64 `json:"package_read_bytes"`
	PackageWrites     int64 `json:"package_writes"`
	PackageWriteBytes int64 `json:"package_write_bytes"`
	// waiting for samples, summed over the trainers here
	StallSeconds Measured `json:"stall_seconds"`
	TrainSeconds float64  `json:"train_seconds"` // in epochs, summed over the trainers here
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

// A Summary describes a whole run. Its Count is the sum over the run's epochs.
type Summary struct {
	Data        string  `json:"data"`
	Ranks       int     `json:"ranks"`
	Epochs      int     `json:"epochs"`
	Draws       int64   `json:"draws"`
	WallSeconds float64 `json:"wall_seconds"`
	Count
}

// A Count is the sum over trainers of what they were given in an epoch.
type Count struct {
	Epoch         int      `json:"epoch"`
	HitsLocal     int64    `json:"hits_local"`
	HitsRemote    int64    `json:"hits_remote"`
	StorageReads  int64    `json:"storage_reads"`
	StorageBytes  int64    `json:"storage_bytes"` // including those of fallback reads
	Substituted   int64    `json:"substituted"`
	FallbackReads int64    `json:"fallback_reads"`
	FallbackBytes int64    `json:"fallback_bytes"`
	StallSeconds  Measured `json:"stall_seconds"` // mean over trainers
	Seconds       float64  `json:"seconds"`       // the slowest trainer's
	// of the reads, those of samples given in place of others
	SubstituteReads int64 `json:"substitute_reads"`
	// samples whose losses were measured without training on them; not included above
	Evaluated      int64 `json:"evaluated"`
	EvaluatedReads int64 `json:"evaluated_reads"` // of these; their bytes are included above
	PlannedHits    int64 `json:"planned_hits"`    // draws that the policies called hits
	// of the hits, local and remote, those that came from a tier
	TierHits int64 `json:"tier_hits"`
	// of a system that reads samples in packages, written beside training
	PackageReads      int64              `json:"package_reads"`
	PackageReadBytes  int64              `json:"package_read_bytes"`
	PackageWrites     int64              `json:"package_writes"`
	PackageWriteBytes int64              `json:"package_write_bytes"`
	Benefit                              // if it was measured in this epoch
	Metrics           map[string]float64 `json:"metrics,omitempty"`
}

// Draws returns the number of samples that were given to trainers.
func (c *Count) Draws() int64 { return int64(c.Sums().Draws()) }

// Add adds another rank's count of the epoch, or that of another epoch.
func (c *Count) Add(d *Count) {
	sums, more := c.Sums(), d.Sums()
	sums.Add(more)
	sums[TrainSeconds] = max(c.Seconds, d.Seconds)
	c.Set(sums)
	c.Join(d.Benefit)
	for name, v := range d.Metrics {
		if c.Metrics == nil {
			c.Metrics = map[string]float64{}
		}
		c.Metrics[name] = v
	}
}
