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
		before[jobKey{j.Name, j.Data}] = j.Sums()
	}
	flows := map[jobKey]stats.Sums{}
	for _, j := range later.Jobs {
		key, sums := jobKey{j.Name, j.Data}, j.Sums()
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

// jobColumns are the columns of the table of trainings.
func jobColumns(jobs []jobRow) []column[jobRow] {
	columns := []column[jobRow]{
		{"job", true, 0, func(j jobRow) line { return plain(cmp.Or(j.Name, "-")) }},
		{"batch", false, 3, func(j jobRow) line { return batchCell(j.Epoch, j.Batch, j.Batches) }},
	}
	if slices.ContainsFunc(jobs, func(j jobRow) bool { return j.Data != jobs[0].Data }) {
		columns = slices.Insert(columns, 1,
			column[jobRow]{"data", true, 6, func(j jobRow) line { return plain(j.Data) }})
	}
	rate := func(title string, order int, cell func(servedRates) line) {
		columns = append(columns, column[jobRow]{title, false, order, func(j jobRow) line {
			if j.Rates == nil {
				return plain("-")
			}
			return cell(*j.Rates)
		}})
	}
	rate("samples/s", 1, func(r servedRates) line { return plain(countText(r.SamplesPerSecond)) })
	for i, share := range []func(servedRates) *float64{
		func(r servedRates) *float64 { return r.LocalShare },
		func(r servedRates) *float64 { return r.RemoteShare },
		func(r servedRates) *float64 { return r.StorageShare },
	} {
		rate([]string{"local", "remote", "storage"}[i], 4, func(r servedRates) line {
			return styled(sourceStyles[i], "%s", shareText(share(r)))
		})
	}
	rate("fallback", 5, func(r servedRates) line { return fallbackCell(r.FallbackShare) })
	rate("stall", 2, func(r servedRates) line { return stallCell(r.StallShare) })
	if slices.ContainsFunc(jobs, func(j jobRow) bool { return j.BatchSeconds > 0 }) {
		columns = append(columns, column[jobRow]{"benefit", false, 3, benefitCell})
	}
	return columns
}

// benefitCell shows how many times as long a batch takes without the cache.
func benefitCell(j jobRow) line {
	if j.BatchSeconds <= 0 {
		return plain("-")
	}
	return styled(plainText, "%.2f", j.Ratio())
}

// jobLines returns an empty line and the table of trainings, nil if there are none. If there are
// many, it shows the first ones.
func (v *view) jobLines() []line {
	jobs := jobsOf(v.rows)
	if len(jobs) == 0 {
		return nil
	}
	shown := jobs
	if most := max(1, v.height/3); v.height > 0 && len(jobs) > most {
		shown = jobs[:most]
	}
	lines := append([]line{nil}, table(jobColumns(jobs), shown, nil, v.width)...)
	if len(shown) < len(jobs) {
		lines = append(lines, styled(faint, "jobs 1 to %d of %d", len(shown), len(jobs)))
	}
	return lines
}
