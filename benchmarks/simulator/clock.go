package simulator

import "fmt"

// Clock is the time model: it runs the events of loading and training, batch by batch, in whole
// nanoseconds. It is not safe for concurrent use. The same calls give the same times on every
// machine.
//
// A batch is released when the step `ahead` batches before it has begun; it is ready when every
// rank has all of it; its step begins when it is ready and the step before it has ended. Between
// release and ready it needs several resources: each rank's readers, link and memory, and the
// storage's bandwidth and metadata server, which all ranks share. A resource serves batches in
// order of need, one after another, and shares itself among the reads of one batch; resources work
// side by side. So the time of an event is the largest of the times of the events that it waits
// for, plus a service time, and needs no queue of events. Every service time is rounded up. It
// follows that nothing that gets faster can make an epoch slower.
//
// Source: Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, section 2.5
// (timed event graphs).
type Clock struct {
	cluster         *Cluster
	ranks           []rankClock
	trainers        int64 // of a rank
	workers         int64 // readers of a rank
	ahead           int
	stepNs          int64 // of one batch
	accessNs        int64 // latency of a read: open and first byte
	readerBandwidth int64 // of one reader

	batches    int     // since the window was opened
	openedNs   int64   // when it was opened; batches with numbers below `ahead` are released then
	begunNs    []int64 // when the step of batch b began, at b mod ahead
	storageNs  int64   // when the storage has moved the bytes of all batches so far
	metadataNs int64   // when the metadata server has opened their files
	endNs      int64   // of the last step
	epochNs    int64   // beginning of the epoch
}

// A rankClock holds the times at which a rank's resources have finished all batches so far.
type rankClock struct{ readersNs, linkNs, memoryNs int64 }

// Nodes are the ranks of the time model: each has Trainers trainers with batches of BatchSize, each
// trainer with its own data loader and accelerator; trainers of a rank share its link and storage.
type Nodes struct{ Ranks, Trainers, BatchSize int }

// NewClock returns a clock at the beginning of the first epoch. At most `ahead` batches are loaded
// before they are trained on; 0 means as many as the cluster's data loader keeps. It panics if a
// number is out of range.
func NewClock(c *Cluster, n Nodes, ahead int) *Clock {
	if n.Ranks < 1 || n.Trainers < 1 || n.BatchSize < 1 || ahead < 0 {
		panic(fmt.Sprintf("simulator: no clock for %d ranks of %d trainers, batches of %d, %d ahead.",
			n.Ranks, n.Trainers, n.BatchSize, ahead))
	}
	if ahead == 0 {
		ahead = max(c.Loader.Workers, 1) * max(c.Loader.PrefetchFactor, 1)
	}
	return &Clock{
		cluster:         c,
		ranks:           make([]rankClock, n.Ranks),
		trainers:        int64(n.Trainers),
		workers:         int64(c.workers(n)),
		ahead:           ahead,
		begunNs:         make([]int64, ahead),
		stepNs:          c.stepNanoseconds(n.BatchSize),
		accessNs:        int64(c.Storage.OpenLatency + c.Storage.ReadLatency),
		readerBandwidth: c.Storage.readerBandwidth(),
	}
}

// Batch runs the next global batch: loads[r] is what rank r needs for it. It panics unless there is
// one load per rank.
func (c *Clock) Batch(loads []Load) {
	if len(loads) != len(c.ranks) {
		panic(fmt.Sprintf("simulator: %d loads for %d ranks.", len(loads), len(c.ranks)))
	}
	slot := c.batches % c.ahead
	releasedNs := c.openedNs
	if c.batches >= c.ahead {
		releasedNs = c.begunNs[slot]
	}
	readyNs, reads, bytes := releasedNs, int64(0), int64(0)
	for r := range loads {
		readyNs = max(readyNs, c.loadRank(&c.ranks[r], &loads[r], releasedNs))
		reads += loads[r].requests()
		bytes += loads[r].StorageBytes
	}
	readyNs = max(readyNs, c.loadShared(reads, bytes, releasedNs))
	c.begunNs[slot] = max(readyNs, c.endNs)
	c.endNs = c.begunNs[slot] + c.stepNs
	c.batches++
}

// Forward runs a forward pass over samples, an equal part on each trainer, after the last step. It
// takes a third of the time of training on them, without an all-reduce.
//
// Source: Kaplan et al., "Scaling Laws for Neural Language Models", arXiv 2001.08361, §2.1: a
// backward pass computes about twice as much as a forward pass.
func (c *Clock) Forward(samples int) {
	part := ceilDiv(int64(samples), int64(len(c.ranks))*c.trainers)
	c.endNs += c.cluster.forwardNanoseconds(part)
}

// EndEpoch ends an epoch and returns its time in seconds, from its begin to the end of its last
// batch's step. With drain, the next epoch begins to load then, as with a framework's data loader.
// Without, its batches follow in the same window, and some of them are under way already.
func (c *Clock) EndEpoch(drain bool) (epochSeconds float64) {
	epochSeconds = seconds(c.endNs - c.epochNs)
	c.epochNs = c.endNs
	if drain {
		c.batches, c.openedNs = 0, c.endNs
	}
	return epochSeconds
}

// loadRank returns when the rank's own resources have finished the batch.
func (c *Clock) loadRank(r *rankClock, l *Load, releasedNs int64) (readyNs int64) {
	network := &c.cluster.Network
	overLink := l.RemoteBytes
	if network.CarriesStorage {
		overLink += l.StorageBytes
	}
	r.memoryNs = max(r.memoryNs, releasedNs) +
		service(l.LocalBytes, c.trainers*c.cluster.Memory.BytesPerSecond)
	r.linkNs = max(r.linkNs, releasedNs) + service(overLink, network.LinkBytesPerSecond)
	readyNs = max(r.memoryNs, r.linkNs)
	if l.RemoteBytes > 0 {
		readyNs = max(readyNs, r.linkNs+int64(network.Latency))
	}
	if reads := l.requests(); reads > 0 {
		busyNs := reads*c.accessNs + service(l.StorageBytes, c.readerBandwidth)
		r.readersNs = max(r.readersNs, releasedNs) + ceilDiv(busyNs, c.workers)
		readyNs = max(readyNs, r.readersNs, releasedNs+c.aloneNs(l, reads))
	}
	return readyNs
}

// aloneNs returns the time of a batch's reads if the rank's readers do nothing else: a read is not
// split among readers.
func (c *Clock) aloneNs(l *Load, reads int64) int64 {
	rounds := ceilDiv(reads, c.workers)
	aloneNs := rounds * (c.accessNs + service(ceilDiv(l.StorageBytes, reads), c.readerBandwidth))
	if l.Packages > 0 { // its bytes are what single reads leave over
		bytes := max(0, l.StorageBytes-int64(l.Reads)*c.cluster.SampleBytes) / int64(l.Packages)
		aloneNs = max(aloneNs, c.accessNs+service(bytes, c.readerBandwidth))
	}
	return aloneNs
}

// loadShared returns when the storage has finished the batch. As many readers work as the window
// has reads, at most all of them.
func (c *Clock) loadShared(reads, bytes, releasedNs int64) (readyNs int64) {
	if reads == 0 {
		return releasedNs
	}
	storage := &c.cluster.Storage
	readers := min(c.workers*int64(len(c.ranks)), reads*int64(c.ahead))
	c.storageNs = max(c.storageNs, releasedNs) + service(bytes, storage.bandwidth(int(readers)))
	c.metadataNs = max(c.metadataNs, releasedNs) + service(reads, storage.OpensPerSecond)
	return max(c.storageNs, c.metadataNs)
}

// requests returns how many reads of storage a load has; bytes without a count are one.
func (l *Load) requests() int64 {
	n := int64(l.Reads) + int64(l.Packages)
	if n == 0 && l.StorageBytes > 0 {
		return 1
	}
	return n
}

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
