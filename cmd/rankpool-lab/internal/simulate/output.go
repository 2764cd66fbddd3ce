package simulate

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"rankpool/benchmarks/simulator"
	"rankpool/scheduler/draw"
	"rankpool/scheduler/systems"
)

// printJSONLines prints an array with one object per line.
func printJSONLines[T any](w io.Writer, objects []T) error {
	var text bytes.Buffer
	text.WriteString("[")
	for i, o := range objects {
		line, err := json.Marshal(o)
		if err != nil {
			return err
		}
		text.WriteString(map[bool]string{true: "\n", false: ",\n"}[i == 0])
		text.Write(line)
	}
	text.WriteString("\n]\n")
	_, err := w.Write(text.Bytes())
	return err
}

// printCSV prints a header and a row per result, with the names and the numbers of the JSON.
func printCSV[T any](w io.Writer, results []*T) error {
	kind := reflect.TypeFor[T]()
	var header []string
	var fields []int
	for i := range kind.NumField() {
		name, rest, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		absent := func(r *T) bool { return reflect.ValueOf(*r).Field(i).IsZero() }
		if name == "-" || rest == "omitempty" &&
			!slices.ContainsFunc(results, func(r *T) bool { return !absent(r) }) {
			continue
		}
		header, fields = append(header, name), append(fields, i)
	}
	table := csv.NewWriter(w)
	if err := table.Write(header); err != nil {
		return err
	}
	for _, r := range results {
		row := make([]string, len(fields))
		for k, i := range fields {
			text, err := json.Marshal(reflect.ValueOf(*r).Field(i).Interface())
			if err != nil {
				return err
			}
			row[k] = strings.Trim(string(text), `"`)
		}
		if err := table.Write(row); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}

// printTable prints the results that people look at first.
func (s *study) printTable(w io.Writer, results []*simulator.Result) error {
	if _, err := fmt.Fprintf(w, "%s: %s samples, %d epochs, the first %d not counted; %s\n", s.trace,
		humanize.Comma(int64(s.base.Trace.Samples())), s.base.Epochs, s.base.SkipEpochs, s.setting(),
	); err != nil {
		return err
	}
	if slices.ContainsFunc(results,
		func(r *simulator.Result) bool { return r.Sampler != results[0].Sampler }) {
		fmt.Fprintln(w, "Systems with different samplers draw different samples: --sampler gives all "+
			"the same.")
	}
	system, sampler, policy := len("system"), len("sampler"), len("policy")
	for _, r := range results {
		system, sampler, policy = max(system, len(r.System)), max(sampler, len(r.Sampler)),
			max(policy, len(r.Policy))
	}
	// Names are aligned left in their columns, numbers right.
	names := fmt.Sprintf("%%-%ds  %%-%ds  %%-%ds", system, sampler, policy)
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, names+"\tcapacity\thits\tof min\tlocal\tsubstituted\tread\tfor "+
		"others\tbytes read\tgap\tepoch s\tbound s\t", "system", "sampler", "policy")
	windows := s.base.Window.Rows > 0
	if windows {
		fmt.Fprint(table, "data sets\t")
	}
	fmt.Fprintln(table)
	for _, r := range results {
		fmt.Fprintf(table, names+"\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.4g\t%.4g\t", r.System,
			r.Sampler, r.Policy, percentOf(r.Capacity, 1), percentOf(float64(r.Hits), r.Draws),
			s.ofMin(r, results), percentOf(float64(r.HitsLocal), r.Draws),
			percentOf(float64(r.Substituted), r.Draws), percentOf(float64(r.StorageReads), r.Draws),
			percentOf(float64(r.SubstituteReads), r.Draws), humanize.IBytes(uint64(r.StorageBytes)),
			r.CoverageGapMax, r.EpochSeconds, r.BoundSeconds)
		if windows {
			fmt.Fprintf(table, "%.2f\t", r.DataSetsRead)
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, withoutMargin(text.String()), tableKey, impRatios(results),
		s.notPublished(results))
	return err
}

// withoutMargin returns a table below an empty line, without the margin that it has on the left
// because it is aligned right.
func withoutMargin(table string) string { return strings.ReplaceAll("\n"+table, "\n  ", "\n") }

// impRatios describes how the share of SpiderCache's importance cache has changed, one line per
// capacity.
func impRatios(results []*simulator.Result) string {
	var text strings.Builder
	for _, r := range results {
		if len(r.ImpRatio) == 0 {
			continue
		}
		fmt.Fprintf(&text, "Importance cache of %s at %s: %s of the memory in epoch 0, %s in epoch %d; "+
			"all epochs: --json.\n", r.System, percentOf(r.Capacity, 1), percentOf(r.ImpRatio[0], 1),
			percentOf(r.ImpRatio[len(r.ImpRatio)-1], 1), len(r.ImpRatio)-1)
	}
	return text.String()
}

// notPublished lists the systems that choose once per epoch but, as published, learn with every
// batch, and the options that make them do so; "" if there are none.
func (s *study) notPublished(results []*simulator.Result) string {
	var names, options []string
	for _, system := range systems.All() {
		own := slices.ContainsFunc(system.Options, func(o systems.Option) bool {
			return o.Name == "by_batch"
		})
		shown := slices.ContainsFunc(results, func(r *simulator.Result) bool {
			return r.System == system.Name
		})
		if own && shown && s.values[system.Name]["by_batch"] == 0 {
			names = append(names, system.Name)
			options = append(options, "--set "+system.Name+".by_batch=1")
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("By epoch: %s; batch by batch, as published, with %s.\n",
		strings.Join(names, ", "), strings.Join(options, " "))
}

const tableKey = `
Shares of the draws: hits (local: in the consumer's rank), substituted (another sample was served
from memory), read; for others: of the reads those of another sample than the one drawn. of min:
hits, as a share of those of Bélády's offline optimum, where its draws are the same. gap: the
longest run of epochs in which some sample was not trained on. epoch and bound: seconds by the time
model, and the least that any cache can reach. data sets: read in each epoch; with --windows counts
are of pieces.
`

// setting describes what all results have in common.
func (s *study) setting() string {
	text := english.Plural(s.base.Ranks, "rank", "")
	if s.base.TrainersPerRank > 1 {
		text += fmt.Sprintf(" × %d trainers", s.base.TrainersPerRank)
	}
	text += fmt.Sprintf(" × batch size %d", s.base.BatchSize)
	if w := s.base.Window; w.Rows > 0 {
		text += fmt.Sprintf(", windows of %s in pieces of %d", english.Plural(w.Rows, "row", ""),
			w.PerPiece)
	}
	if s.base.Jobs > 1 {
		text += fmt.Sprintf(", %d jobs", s.base.Jobs)
	}
	return text
}

func percentOf[N int | int64](part float64, whole N) string {
	return fmt.Sprintf("%.1f %%", 100*part/float64(max(whole, 1)))
}

// ofMin returns a result's hits as a share of those of the system min with the same draws, or "-"
// if there is no such result.
func (s *study) ofMin(r *simulator.Result, all []*simulator.Result) string {
	for _, best := range all {
		if best.System == "min" && cmp.Compare(best.Capacity, r.Capacity) == 0 && best.Hits > 0 &&
			s.sameDraws(r, best) {
			return percentOf(float64(r.Hits), best.Hits)
		}
	}
	return "-"
}

// sameDraws reports whether two systems got the same draws: because the user chose the sampler, or
// because they have the same sampler and it depends on no scores.
func (s *study) sameDraws(a, b *simulator.Result) bool {
	if s.base.Sampler != "" {
		return true
	}
	sampler, err := draw.NewSampler(
		draw.SamplerConfig{Name: a.Sampler, Samples: 1, BatchSize: 1, World: 1})
	return err == nil && !sampler.Weighted() && a.Sampler == b.Sampler && a.Draws == b.Draws
}
