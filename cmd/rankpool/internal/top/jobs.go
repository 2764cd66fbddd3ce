package top

import (
	"cmp"
	"slices"

	"rankpool/mpicache/stats"
)

// jobKey names one of several trainings.
type jobKey struct{ name, data string }

// A jobRow is one of several trainings, over all ranks.
type jobRow struct {
	Name string `json:"name"` // "": the training without a name
	Data string `json:"data"`
	// this and the next two are of the rank that is furthest behind
	Epoch   int          `json:"epoch"`
	Batch   int          `json:"batch"`
	Batches int          `json:"batches"`
	Rates   *servedRates `json:"rates"` // nil after the first reading
	stats.Benefit
}

// jobFlows returns what each training got per second on a rank between two readings. A training
// that is new, or has restarted, counts from 0.
func jobFlows(earlier, later stats.Reading) map[jobKey]stats.Sums {
	before := map[jobKey]stats.Sums{}
	for _, j := range earlier.Jobs {
		before[jobKey{j.Name, j.Data}] = j.Sums
	}
	flows := map[jobKey]stats.Sums{}
	for _, j := range later.Jobs {
		key, sums := jobKey{j.Name, j.Data}, j.Sums
		if b := before[key]; b.Draws() <= sums.Draws() {
			sums = sums.Minus(b)
		}
		flows[key] = sums.Times(1 / (later.Seconds - earlier.Seconds))
	}
	return flows
}

// jobsOf returns the trainings that the ranks report, by name; nil if there are none.
func jobsOf(rows []nodeRow) []jobRow {
	var jobs []jobRow
	flows := map[jobKey]stats.Sums{}
	for _, r := range rows {
		for key, flow := range r.jobs {
			sum := flows[key]
			sum.Add(flow)
			flows[key] = sum
		}
		for _, j := range r.Jobs {
			jobs = addJob(jobs, jobRow{j.Name, j.Data, j.Epoch, j.Batch, j.Batches, nil, j.Benefit})
		}
	}
	for i := range jobs {
		if flow, known := flows[jobKey{jobs[i].Name, jobs[i].Data}]; known {
			jobs[i].Rates = new(servedOf(flow))
		}
	}
	slices.SortFunc(jobs, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Data, b.Data))
	})
	return jobs
}

// addJob adds a rank's view of a training: the rank that is furthest behind counts, except ranks
// where the training has not begun.
func addJob(jobs []jobRow, j jobRow) []jobRow {
	at := slices.IndexFunc(jobs, func(k jobRow) bool { return k.Name == j.Name && k.Data == j.Data })
	if at < 0 {
		return append(jobs, j)
	}
	k := &jobs[at]
	j.Join(k.Benefit)
	k.Benefit = j.Benefit
	behind := cmp.Or(cmp.Compare(j.Epoch, k.Epoch), cmp.Compare(j.Batch, k.Batch)) < 0
	if k.Epoch < 0 || behind && j.Epoch >= 0 {
		*k = j
	}
	return jobs
}
