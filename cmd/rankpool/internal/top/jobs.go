package top

import (
	"cmp"
	"slices"

	"rankpool/mpicache/stats"
)

// A jobRow is one of several trainings, over all ranks.
type jobRow struct {
	Name string `json:"name"` // "": the training without a name
	Data string `json:"data"`
	// this and the next two are of the rank that is furthest behind, except ranks where the training
	// has not begun
	Epoch   int          `json:"epoch"`
	Batch   int          `json:"batch"`
	Batches int          `json:"batches"`
	Rates   *servedRates `json:"rates"` // nil after the first reading
	stats.Benefit

	flow stats.Sums // of the ranks, per second
}

// jobsOf returns the trainings that the ranks report, by name; nil if there are none.
func jobsOf(rows []nodeRow) []jobRow {
	var jobs []jobRow
	for _, r := range rows {
		for _, j := range r.Jobs {
			at := slices.IndexFunc(jobs, func(k jobRow) bool { return k.Name == j.Name && k.Data == j.Data })
			if at < 0 {
				at = len(jobs)
				jobs = append(jobs, jobRow{Name: j.Name, Data: j.Data, Epoch: -1})
			}
			jobs[at].add(r, j)
		}
	}
	slices.SortFunc(jobs, func(a, b jobRow) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Data, b.Data))
	})
	return jobs
}

// add adds a rank's view of a training. One that is new, or has restarted, counts from 0.
func (k *jobRow) add(r nodeRow, j stats.Job) {
	k.Join(j.Benefit)
	behind := cmp.Or(cmp.Compare(j.Epoch, k.Epoch), cmp.Compare(j.Batch, k.Batch)) < 0
	if k.Epoch < 0 || behind && j.Epoch >= 0 {
		k.Epoch, k.Batch, k.Batches = j.Epoch, j.Batch, j.Batches
	}
	if r.earlier == nil {
		return
	}
	sums := j.Sums
	for _, b := range r.earlier.Jobs {
		if b.Name == j.Name && b.Data == j.Data && b.Draws() <= sums.Draws() {
			sums = sums.Minus(b.Sums)
			break
		}
	}
	k.flow.Add(sums.Times(1 / (r.Seconds - r.earlier.Seconds)))
	k.Rates = new(servedOf(k.flow))
}
