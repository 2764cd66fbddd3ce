package report

import (
	"fmt"
	"math"
	"slices"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/svg"
	"rankpool/mpicache/stats"
)

// epochRows is the maximum number of epochs in the table.
const epochRows = 200

func epochTable(run *runlog.Run) *Table {
	t := countTable("Over all trainers", run.Epochs)
	if t != nil && len(run.Epochs) > epochRows {
		t.Name = fmt.Sprintf("Over all trainers, %d of %d epochs", epochRows, len(run.Epochs))
	}
	return t
}

// countHead are the headings of a table of epochs.
var countHead = []string{
	"epoch", "seconds", "waited", "hits", "storage", "bytes", "own memory", "other nodes", "fallback",
	"samples",
}

// countCells are the cells of an epoch below all of these headings but the first.
func countCells(e *stats.Epoch) []string {
	draws := e.Draws()
	return []string{
		svg.Number(e.Sums[stats.TrainSeconds]), Percent(waited(&e.Sums)),
		Percent(stats.Ratio(e.Hits(), draws)),
		Percent(stats.Ratio(e.Sums[stats.StorageReads], draws)),
		In(DecimalSizes, e.Sums[stats.StorageBytes]),
		Percent(stats.Ratio(e.Sums[stats.HitsLocal], draws)),
		Percent(stats.Ratio(e.Sums[stats.HitsRemote], draws)),
		Count(e.Sums[stats.FallbackReads]), Count(draws),
	}
}

// countTable has a row per epoch, with the metrics of training; nil without epochs.
func countTable(name string, epochs []stats.Epoch) *Table {
	if len(epochs) == 0 {
		return nil
	}
	metrics := runlog.MetricNames(epochs)
	t := &Table{Name: name, Head: slices.Clone(countHead)}
	measured := slices.ContainsFunc(epochs, func(e stats.Epoch) bool { return e.BatchSeconds > 0 })
	if measured {
		t.Head = append(t.Head, "benefit")
	}
	t.Head = append(t.Head, metrics...)
	named := false
	for i := range epochs {
		named = named || epochs[i].Data != epochs[0].Data
	}
	for _, g := range groupsOf(len(epochs), epochRows) {
		e := &epochs[g[1]-1]
		epoch := fmt.Sprint(e.Epoch)
		if named {
			epoch += " " + e.Data
		}
		row := append([]string{epoch}, countCells(e)...)
		if measured {
			row = append(row, svg.Number(e.Ratio()))
		}
		for _, metric := range metrics {
			value, found := e.Metrics[metric]
			if !found {
				value = math.NaN()
			}
			row = append(row, svg.Number(value))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// trainingsOf returns the epochs of each training with a job name, by name.
func trainingsOf(run *runlog.Run) (trainings [][]stats.Epoch) {
	for rest := run.Trainings; len(rest) > 0; {
		end := slices.IndexFunc(rest, func(e stats.Epoch) bool { return e.Job != rest[0].Job })
		if end < 0 {
			end = len(rest)
		}
		trainings, rest = append(trainings, rest[:end]), rest[end:]
	}
	return trainings
}

// trainingTables have a row for each training with a job name, and one for each of its epochs.
func trainingTables(run *runlog.Run) []*Table {
	trainings := trainingsOf(run)
	if len(trainings) == 0 {
		return nil
	}
	all := &Table{Name: "Trainings with job names", Head: append([]string{"job", "epochs"},
		countHead[1:]...)}
	tables := []*Table{all}
	for _, epochs := range trainings {
		sum := stats.Epoch{Job: epochs[0].Job}
		sum.Sums = sumsOf(epochs)
		all.Rows = append(all.Rows, append([]string{sum.Job, fmt.Sprint(len(epochs))},
			countCells(&sum)...))
		tables = append(tables, countTable("Job "+sum.Job, epochs))
	}
	return tables
}
