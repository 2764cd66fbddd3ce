package systems

import (
	"math"
	"slices"

	"rankpool/scheduler/draw"
)

// icacheJobs holds the jobs that train on the same samples: their H-lists, and their combined
// importance.
//
// With several jobs, the first batches of each job's epoch are served without the cache, and as
// many after them with it; the ratio of the times is the job's benefit. A job that benefits enough
// is eligible. The importance of sample i is
//
//	AIV_i = Σ benefit_j · RIV_ij
//
// over the eligible jobs j, where RIV_ij is the percentile of i's importance in job j.
//
// Source: Chen et al., "iCACHE", HPCA 2023, §III-D. Differs: an epoch too short for that is
// measured with a quarter of its batches without the cache and a quarter with it. A job's benefit
// is 2 until it is known. If no job is eligible, all are.
type icacheJobs struct {
	cfg       PoolConfig
	share     float64
	probe     int // batches without, and then with the cache, as the option asks
	threshold float64
	jobs      []icacheJob
}

// icacheJob is a job's H-list and the state of its epoch under way.
type icacheJob struct {
	listed  bool      // it has a list; without one all samples are H
	values  []float32 // importance of all samples, on the list
	ranks   []int32   // of values; nil with a single job
	least   float32   // importance of the least H-sample
	benefit float64
	probe   int // batches of the epoch without, and then with the cache; 0: nothing is measured
}

// unmeasured is the benefit of a job until it is measured: above the paper's threshold, so that the
// job is eligible.
const unmeasured = 2

func newICacheJobs(cfg PoolConfig) *icacheJobs {
	j := &icacheJobs{
		cfg: cfg, share: cfg.Value("h_share"), probe: int(cfg.Value("probe_batches")),
		threshold: cfg.Value("benefit_threshold"),
		jobs:      make([]icacheJob, cfg.Jobs),
	}
	for i := range j.jobs {
		j.jobs[i].benefit = unmeasured
		j.pull(i)
	}
	return j
}

// pull copies a job's importance.
func (j *icacheJobs) pull(job int) {
	list := &j.jobs[job]
	list.values = append(list.values[:0], j.cfg.Scores[job].Cut...)
	if len(j.jobs) > 1 {
		list.ranks = draw.Ranks(list.values)
	}
}

// begin pulls the H-list of a job's epoch, and reports whether the job had one in the previous
// epoch. H-samples are those at least as important as the least important draw in the top share of
// the epoch's draws.
func (j *icacheJobs) begin(job int, ids []draw.SampleID) (had bool) {
	list := &j.jobs[job]
	had = list.listed
	j.pull(job)
	if list.listed = j.cfg.Scores[job].AnyKnown && len(ids) > 0; list.listed {
		drawn := make([]float32, len(ids))
		for i, id := range ids {
			drawn[i] = list.values[id]
		}
		list.least = leastOf(drawn, j.share)
	}
	list.probe = j.probe
	if batches := (len(ids) + j.cfg.GlobalBatch - 1) / j.cfg.GlobalBatch; len(j.jobs) == 1 {
		list.probe = 0
	} else if batches <= 2*list.probe {
		list.probe = batches / 4
	}
	return had
}

// isHigh reports whether a sample is on a job's H-list.
func (j *icacheJobs) isHigh(job int, id draw.SampleID) bool {
	list := &j.jobs[job]
	return !list.listed || list.values[id] >= list.least
}

// isLow reports whether a sample is on no H-list. It is false for all samples until there is a
// list.
func (j *icacheJobs) isLow(id draw.SampleID) bool {
	low := false
	for job := range j.jobs {
		if j.jobs[job].listed {
			if j.isHigh(job, id) {
				return false
			}
			low = true
		}
	}
	return low
}

// step reports whether a batch is served without the cache, and whether the job's benefit changed,
// which changes the importance.
func (j *icacheJobs) step(b *Batch) (without, changed bool) {
	probe := j.jobs[b.Job].probe
	return b.Number < probe, probe > 0 && b.Number == 2*probe && j.measure(b.Job)
}

// measure updates a job's benefit, Ratio = T_cacheless / T_cache over the epoch's measured batches,
// and reports whether it changed.
func (j *icacheJobs) measure(job int) (changed bool) {
	if j.cfg.BatchSeconds == nil {
		return false
	}
	list := &j.jobs[job]
	without, with := j.cfg.BatchSeconds(job, 0, list.probe),
		j.cfg.BatchSeconds(job, list.probe, 2*list.probe)
	if !(with > 0 && without <= math.MaxFloat64) {
		return false // not known
	}
	before := list.benefit
	list.benefit = without / with
	return list.benefit != before
}

// importance returns the importance of all samples: a single job's own, otherwise AIV.
func (j *icacheJobs) importance() []float32 {
	if len(j.jobs) == 1 {
		return j.jobs[0].values
	}
	eligible := func(l icacheJob) bool { return l.benefit > j.threshold }
	if !slices.ContainsFunc(j.jobs, eligible) {
		eligible = func(icacheJob) bool { return true }
	}
	sums := make([]float64, j.cfg.Samples)
	for _, list := range j.jobs {
		if eligible(list) {
			for i, rank := range list.ranks {
				sums[i] += float64(list.benefit * (float64(rank) / float64(len(sums))))
			}
		}
	}
	values := make([]float32, len(sums))
	for i, sum := range sums {
		values[i] = float32(sum)
	}
	return values
}
