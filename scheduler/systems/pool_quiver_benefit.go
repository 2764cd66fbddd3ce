package systems

// quiverMode is how much of a data set is cached.
type quiverMode uint8

const (
	quiverNone    quiverMode = iota // nothing
	quiverChunked                   // two chunks
	quiverFull                      // all of it, as the first epoch reads it
)

// profits reports whether a job profits from caching: by t_m/t_h, or if nothing is known.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3. Differs: there is no probing phase in
// which look-ups are refused; PoolConfig.StepSeconds returns what it would measure.
func (q *quiver) profits(job int) bool {
	if q.cfg.StepSeconds == nil {
		return true
	}
	hit, miss := q.cfg.StepSeconds(job)
	return hit <= 0 || miss >= q.benefit*hit
}

// weigh chooses the mode again by the benefits of all jobs. Co-operative misses are not measured;
// they count as hits.
func (q *quiver) weigh() {
	wanted := false
	for job := range q.jobs {
		wanted = wanted || q.profits(job)
	}
	if mode := q.fit(wanted); mode != q.mode {
		q.reset(mode)
		for i := range q.jobs {
			q.jobs[i].chunk = -1
		}
	}
}

// fit returns the mode that fits into memory, if some job profits.
//
// Source: Kumar and Sivathanu, "Quiver", FAST 2020, §5.3, for a single data set. Differs: the paper
// has one benefit per data set, by which two chunks would always be the better choice. Its §7.6
// caches whole data sets when there is room, as here.
func (q *quiverBuffer) fit(wanted bool) quiverMode {
	switch {
	case !wanted:
		return quiverNone
	case q.bytes <= q.memory.CapacityBytes():
		return quiverFull
	case q.pairBytes > 0: // quiverFit has made them fit
		return quiverChunked
	}
	return quiverNone
}
