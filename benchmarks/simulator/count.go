package simulator

import (
	"fmt"

	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// count counts where draws were served from, and checks that a pool keeps its contract; it panics
// with the rule that was broken.
type count struct {
	setup    *setup
	memory   *systems.Memory
	clock    *Clock // nil: no time
	result   Result
	coverage []*coverage // by job
	digest   *idsDigest  // of the first job
	alone    []*jobClock // by job; nil: there is one job, or no time

	epoch    int
	loads    []Load           // by rank, of the step under way
	forward  int              // samples that the step under way evaluates, of the job with most
	before   []Load           // the loads when the batch under way began
	here     []bool           // by sample: in memory at the end of the batch before
	stamp    int32            // of the batch under way
	movedAt  []int32          // by sample: stamp of the last batch that added or dropped it
	servedAt []int32          // by sample: stamp of the last batch in which it was served
	readIn   []int32          // by sample: 1 + the last epoch in which it was read
	readNow  int64            // bytes of the samples read in this epoch, each once
	packages systems.Packages // of this epoch
	served   []draw.SampleID  // of this epoch

	seconds, bound, plan float64 // sums over the epochs that count
}

func newCount(s *setup, memory *systems.Memory) *count {
	n := s.held()
	c := &count{
		setup: s, memory: memory, clock: s.newClock(), loads: make([]Load, s.Ranks),
		here:    make([]bool, n),
		movedAt: make([]int32, n), servedAt: make([]int32, n), readIn: make([]int32, n),
		digest: newIDsDigest(s.IDsDigest),
	}
	for job := range s.Jobs {
		c.coverage = append(c.coverage, newCoverage(n, s.SkipEpochs))
		if s.Jobs > 1 && s.Cluster != nil {
			c.alone = append(c.alone, s.newJobClock(job))
		}
	}
	return c
}

func (c *count) counts() bool { return c.epoch >= c.setup.SkipEpochs }

// begin begins an epoch.
func (c *count) begin(epoch int) {
	c.epoch, c.readNow = epoch, 0
	c.packages, c.served = systems.Packages{}, c.served[:0]
	for _, job := range c.alone {
		job.begin()
	}
	c.result.Epochs = append(c.result.Epochs, EpochResult{})
}

// read counts a read of one sample of storage by a rank.
func (c *count) read(id draw.SampleID, rank int32) {
	size := c.memory.Size(id)
	c.loads[rank].StorageBytes += size
	c.loads[rank].Reads++
	c.bytes(size)
	c.touch(id)
}

func (c *count) bytes(n int64) {
	if c.counts() {
		c.result.StorageBytes += n
	}
}

// touch counts that storage was read for a sample in this epoch.
func (c *count) touch(id draw.SampleID) {
	if c.readIn[id] != int32(c.epoch)+1 {
		c.readIn[id] = int32(c.epoch) + 1
		c.readNow += c.memory.Size(id)
	}
}

// evaluated records that the losses of ids, which are in memory, are measured. They do not count as
// draws.
func (c *count) evaluated(ids []draw.SampleID) {
	c.stamp++
	c.settle()
	c.forward = max(c.forward, len(ids))
	for i, id := range ids {
		if !c.here[id] {
			panic(fmt.Sprintf("simulator: %s evaluated sample %d in epoch %d, which is not in "+
				"memory.", c.setup.System.Name, id, c.epoch))
		}
		c.fromMemory(id, c.setup.rankOf(i%c.setup.trainers()))
		if first := c.memory.Served(id); c.counts() {
			c.result.Evaluated++
			if first {
				c.result.EvaluatedReads++
			}
		}
	}
}

// settle records the samples that were added and dropped. Only Load and the draws of the current
// batch may add any.
func (c *count) settle() {
	if used, most := c.memory.UsedBytes(), c.memory.CapacityBytes(); used > most {
		panic(fmt.Sprintf("simulator: %s holds %d bytes, its capacity is %d.", c.setup.System.Name,
			used, most))
	}
	for _, id := range c.memory.Moved() {
		c.movedAt[id] = c.stamp
		now, before := c.memory.Has(id), c.here[id]
		switch {
		case c.memory.Fresh(id) && (now || !before):
			c.touch(id)
		case now && !before && c.servedAt[id] != c.stamp:
			panic(fmt.Sprintf("simulator: %s kept sample %d in epoch %d without reading it.",
				c.setup.System.Name, id, c.epoch))
		}
		c.here[id] = now
	}
	bytes, requests := c.memory.Loaded()
	c.bytes(bytes)
	for r := range c.loads {
		c.loads[r].StorageBytes += share(bytes, r, c.setup.Ranks)
		c.loads[r].Packages += int32(share(requests, r, c.setup.Ranks))
	}
}

// share returns a rank's part of the whole: the parts differ by at most one and sum to the whole.
func share(whole int64, rank, ranks int) int64 {
	return whole/int64(ranks) + min(max(whole%int64(ranks)-int64(rank), 0), 1)
}

// batch counts the answers of a global batch.
func (c *count) batch(b *systems.Batch, answers []systems.Answer) {
	c.stamp++
	c.before = append(c.before[:0], c.loads...)
	for i, a := range answers {
		c.servedAt[a.Served] = c.stamp
		if a.Read {
			c.read(a.Served, b.Rank[i])
		}
	}
	c.settle()
	c.packages.Load(c.memory.Packages())
	var from BatchResult
	for i, a := range answers {
		c.answer(b.IDs[i], b.Rank[i], a, &from)
		c.coverage[b.Job].trained(b.Epoch, a.Served)
	}
	c.result.Epochs[c.epoch].Batches = append(c.result.Epochs[c.epoch].Batches, from)
	if r := &c.result; c.counts() {
		r.Draws += int64(len(b.IDs))
		r.add(from)
	}
}

// add counts where the draws of a global batch came from.
func (r *Result) add(b BatchResult) {
	r.Hits += int64(b.Local + b.Remote)
	r.HitsLocal += int64(b.Local)
	r.HitsRemote += int64(b.Remote)
	r.Substituted += int64(b.Substituted)
	r.StorageReads += int64(b.Storage)
	r.SubstituteReads += int64(b.substituteReads)
}

// trained records what the pool did when it received the losses of a job's batch, the one counted
// last.
func (c *count) trained(job int) {
	c.settle()
	if c.alone != nil {
		c.alone[job].batch(c.before, c.loads)
	}
}

// answer counts one draw of a rank. A read of storage counts with the first draw that it serves,
// whether it was for that draw or ahead of it, and whether it was of the drawn sample or of a
// substitute.
func (c *count) answer(drawn draw.SampleID, rank int32, a systems.Answer, from *BatchResult) {
	local := false
	if !a.Read {
		if !c.here[a.Served] && c.movedAt[a.Served] != c.stamp {
			panic(fmt.Sprintf("simulator: %s served sample %d for %d in epoch %d from memory, "+
				"where it is not.", c.setup.System.Name, a.Served, drawn, c.epoch))
		}
		local = c.fromMemory(a.Served, rank)
	}
	early := !a.Read && c.memory.Served(a.Served)
	if early {
		c.packages.Serve(len(c.served), a.Served, c.memory.Home(a.Served))
	}
	c.served = append(c.served, a.Served)
	switch read := a.Read || early; {
	case read:
		from.Storage++
		if a.Served != drawn {
			from.substituteReads++
		}
	case a.Served != drawn:
		from.Substituted++
	case local:
		from.Local++
	default:
		from.Remote++
	}
}

// fromMemory counts that a rank gets a sample from memory, and reports whether from its own.
func (c *count) fromMemory(id draw.SampleID, rank int32) (local bool) {
	if local = c.memory.At(id, rank); local {
		c.loads[rank].LocalBytes += c.memory.Size(id)
	} else {
		c.loads[rank].RemoteBytes += c.memory.Size(id)
	}
	return local
}

// took returns systems.PoolConfig.BatchSeconds, nil if there is no time model or only one job.
func (c *count) took() func(job, begin, end int) float64 {
	if c.alone == nil {
		return nil
	}
	return func(job, begin, end int) float64 { return c.alone[job].took(begin, end) }
}

// step ends a global batch of every job. The jobs run at the same time, each on its own
// accelerators, and share the rest of a node. What is evaluated follows.
func (c *count) step() {
	if c.clock != nil {
		c.clock.Batch(c.loads)
		c.clock.Forward(c.forward)
	}
	clear(c.loads)
	c.forward = 0
}

// end ends an epoch of steps, in which all jobs together made the given number of draws.
func (c *count) end(steps, draws int) {
	s := c.setup
	c.countPackages()
	if c.clock == nil {
		return
	}
	seconds := c.clock.EndEpoch(!s.plansAhead())
	c.result.Epochs[c.epoch].Seconds = seconds
	if c.counts() {
		c.seconds += seconds
		c.bound += s.slowest().Bound(s.nodes(), steps, c.readNow)
		c.plan += s.Cluster.PlanSeconds(draws)
	}
}

// countPackages counts the packages that ranks would read in the epoch, if all were written in
// time.
func (c *count) countPackages() {
	if !c.counts() {
		return
	}
	for _, places := range c.packages.All() {
		c.result.Packages++
		for _, place := range places {
			c.result.PackageBytes += c.memory.Size(c.served[place])
		}
	}
}

// finish returns the counts.
func (c *count) finish() *Result {
	s, r := c.setup, c.result // a copy: a result does not keep the counts in memory
	s.describe(&r, s.scorer, c.coverage, c.digest)
	counted := float64(s.Epochs - s.SkipEpochs)
	r.EpochSeconds, r.BoundSeconds, r.PlanSeconds = c.seconds/counted, c.bound/counted,
		c.plan/counted
	return &r
}

// describe says in r what was run, and what the jobs were trained on.
func (s *setup) describe(r *Result, scorer string, jobs []*coverage, digest *idsDigest) {
	r.System, r.Sampler, r.Scorer, r.Policy = s.System.Name, s.sampler, scorer, s.policy
	r.Capacity, r.Ranks, r.TrainersPerRank, r.Jobs = s.Capacity, s.Ranks, s.TrainersPerRank, s.Jobs
	if s.pieces != nil {
		r.DataSetsRead = float64(r.StorageBytes) / float64(s.totalBytes*int64(s.Epochs-s.SkipEpochs))
	}
	r.Distinct, r.IDsDigest = distinct(jobs), digest.hex()
	for _, job := range jobs {
		r.CoverageGapMax = max(r.CoverageGapMax, job.gapMax(s.Epochs))
	}
}
