package systems

import "math"

// quiverMode is how much of a data set is cached.
type quiverMode uint8

const (
	quiverNone    quiverMode = iota // nothing
	quiverChunked                   // two chunks
	quiverFull                      // all of it, as the first epoch reads it
)

// quiverData is a data set as the cache manager sees it.
type quiverData struct {
	bytes     int64   // cost of all of it
	pairBytes int64   // cost of two chunks; 0 if it cannot be cached in chunks
	full      float64 // G, the sum of the jobs' g, with all of it in memory
	chunked   float64 // the same with two chunks
}

// quiverGain is g = b·n with b = t_m/t_h, for a job on n GPUs.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3.
func quiverGain(hitSeconds, missSeconds float64, gpus int) float64 {
	return missSeconds / hitSeconds * float64(gpus)
}

// quiverPlace chooses a mode for each data set, greedily: of all steps to a larger mode that fit
// into what is left of capacityBytes, it takes the one with the largest ratio of added benefit to
// added cost, the first in a tie. A data set without any benefit is not cached.
//
// Source: §5.3. Differs: the paper has one benefit per data set, by which two chunks would always
// be the better choice. Its §7.6 caches whole data sets when there is room, so here a step counts
// what it adds. With Table 3's figures for hits and co-operative misses this gives the choices of
// §7.6.
func quiverPlace(data []quiverData, capacityBytes int64) []quiverMode {
	modes := make([]quiverMode, len(data))
	for {
		best, to, most := -1, quiverNone, -1.0
		for i, d := range data {
			if d.full <= 0 {
				continue
			}
			for m := modes[i] + 1; m <= quiverFull; m++ {
				cost := d.cost(m) - d.cost(modes[i])
				if m == quiverChunked && d.pairBytes == 0 || cost > capacityBytes {
					continue
				}
				if ratio := quiverRatio(d.gain(m)-d.gain(modes[i]), cost); ratio > most {
					best, to, most = i, m, ratio
				}
			}
		}
		if best < 0 {
			return modes
		}
		capacityBytes -= data[best].cost(to) - data[best].cost(modes[best])
		modes[best] = to
	}
}

// quiverRatio returns benefit per byte, infinite for a step that costs nothing.
func quiverRatio(benefit float64, costBytes int64) float64 {
	if costBytes <= 0 {
		return math.Inf(1)
	}
	return benefit / float64(costBytes)
}

func (d *quiverData) cost(m quiverMode) int64 { return [...]int64{0, d.pairBytes, d.bytes}[m] }

func (d *quiverData) gain(m quiverMode) float64 { return [...]float64{0, d.chunked, d.full}[m] }

// weight returns a job's g, 0 if the job does not profit from caching, and 1 if nothing is known.
//
// Differs: there is no probing phase in which look-ups are refused; PoolConfig.StepSeconds returns
// what it would measure.
func (q *quiver) weight(job int) float64 {
	if q.cfg.StepSeconds == nil {
		return 1
	}
	hit, miss := q.cfg.StepSeconds(job)
	if hit <= 0 {
		return 1
	}
	if miss < q.benefit*hit {
		return 0
	}
	return quiverGain(hit, miss, q.cfg.Ranks)
}

// weigh chooses the mode again by the benefits of all jobs. Co-operative misses are not measured;
// they count as hits.
func (q *quiver) weigh() {
	sum := 0.0
	for job := range q.jobs {
		sum += q.weight(job)
	}
	data := quiverData{q.bytes, q.pairBytes, sum, sum}
	mode := quiverPlace([]quiverData{data}, q.memory.CapacityBytes())[0]
	if mode == q.mode {
		return
	}
	q.reset(mode)
	for i := range q.jobs {
		q.jobs[i].chunk = -1
	}
}
