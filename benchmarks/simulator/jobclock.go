package simulator

// A jobClock measures the time of a job's batches as if the job had its nodes' readers, links and
// memory, and the storage, to itself. In the simulation all jobs take their steps in parallel, so
// that the steps of one cannot be distinguished from those of another.
type jobClock struct {
	clock *Clock
	loads []Load // scratch, by rank
	// by batch of the epoch under way: when it ended, in seconds from the epoch's begin
	ends []float64
}

func (s *setup) newJobClock(job int) *jobClock {
	return &jobClock{clock: NewClock(s.clusterOf(job), s.nodes(), 0), loads: make([]Load, s.Ranks)}
}

// begin begins an epoch.
func (j *jobClock) begin() {
	j.clock.EndEpoch(true)
	j.ends = j.ends[:0]
}

// batch adds the job's next batch, which changed the loads of a step from before to after.
func (j *jobClock) batch(before, after []Load) {
	for r := range j.loads {
		j.loads[r] = after[r].minus(before[r])
	}
	j.clock.Batch(j.loads)
	j.ends = append(j.ends, seconds(j.clock.endNs-j.clock.epochNs))
}

// took is systems.PoolConfig.BatchSeconds.
func (j *jobClock) took(begin, end int) float64 {
	if begin == 0 {
		return j.ends[end-1]
	}
	return j.ends[end-1] - j.ends[begin-1]
}

// minus returns what l has more than other.
func (l Load) minus(other Load) Load {
	return Load{
		LocalBytes: l.LocalBytes - other.LocalBytes, RemoteBytes: l.RemoteBytes - other.RemoteBytes,
		StorageBytes: l.StorageBytes - other.StorageBytes, Reads: l.Reads - other.Reads,
		Packages: l.Packages - other.Packages,
	}
}
