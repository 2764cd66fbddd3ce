package systems

// quiverMode is how much of a data set is cached.
type quiverMode uint8

const (
	quiverNone    quiverMode = iota // nothing
	quiverChunked                   // two chunks
	quiverFull                      // all of it, as the first epoch reads it
)

// quiverGain is g = b·n with b = t_m/t_h, for a job on n GPUs.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3.
func quiverGain(hitSeconds, missSeconds float64, gpus int) float64 {
	return missSeconds / hitSeconds * float64(gpus)
}

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
	if mode := q.fit(sum); mode != q.mode {
		q.reset(mode)
		for i := range q.jobs {
			q.jobs[i].chunk = -1
		}
	}
}

// fit returns the mode that fits into memory; gain is G, the sum of the jobs' g.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3, for a single data set. Differs: the paper
// has one benefit per data set, by which two chunks would always be the better choice. Its §7.6
// caches whole data sets when there is room, as here.
func (q *quiverBuffer) fit(gain float64) quiverMode {
	switch {
	case gain <= 0:
		return quiverNone
	case q.bytes <= q.memory.CapacityBytes():
		return quiverFull
	case q.pairBytes > 0: // quiverFit has made them fit
		return quiverChunked
	}
	return quiverNone
}
