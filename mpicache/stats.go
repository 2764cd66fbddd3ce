package mpicache

// RankStats is what one rank has done since it began, and its present state. Sums never fall while
// the rank lives; a restarted rank begins at 0.
type RankStats struct {
	Rank     int     `json:"rank"`
	Host     string  `json:"host"`
	Seconds  float64 `json:"seconds"`  // since the rank began
	Trainers int     `json:"trainers"` // training processes that are connected now

	Data    string `json:"data"`    // the data set in training, "" before the first epoch
	Epoch   int    `json:"epoch"`   // -1 before the first
	Batch   int    `json:"batch"`   // how many the slowest trainer here has been given
	Batches int    `json:"batches"` // of the epoch

	// What the trainers here were given, in samples and bytes.
	HitsLocal     int64 `json:"hits_local"`
	HitsRemote    int64 `json:"hits_remote"`
	TierHits      int64 `json:"tier_hits"` // of the hits
	StorageReads  int64 `json:"storage_reads"`
	StorageBytes  int64 `json:"storage_bytes"`
	FallbackReads int64 `json:"fallback_reads"`
	FallbackBytes int64 `json:"fallback_bytes"`
	Substituted   int64 `json:"substituted"`
	// waiting for samples, summed over the trainers here
	StallSeconds float64 `json:"stall_seconds"`
	TrainSeconds float64 `json:"train_seconds"` // in epochs, summed over the trainers here

	PeerBytes int64 `json:"peer_bytes"` // received from other ranks' memory

	// of samples' memory; less than at the start when it has shrunk
	SlabBytes     int64 `json:"slab_bytes"`
	UsedBytes     int64 `json:"used_bytes"` // of the slab
	Residents     int64 `json:"residents"`  // samples that stay in memory
	ResidentBytes int64 `json:"resident_bytes"`

	// Ready is the share of what the trainers here are given next, as far as the staging window
	// reaches, that is in memory, in [0, 1].
	Ready float64 `json:"ready"`
	// the next epoch's plan is there, so that the window runs on into it
	NextPlanned bool `json:"next_planned"`

	Machine Machine `json:"machine"`
}

// Machine is what the rank's process knows about its storage, memory and GPUs. Whoever configures
// the node measures it.
type Machine struct {
	StorageReads  int64 `json:"storage_reads"` // requests by this rank, ahead of use too
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
	SampledSeconds float64 `json:"sampled_seconds"`
	IdleSeconds    float64 `json:"idle_seconds"`
	WaitedSeconds  float64 `json:"waited_seconds"`
}
