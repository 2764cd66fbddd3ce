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
	"rankpool/scheduler"
)

// printResultsJSON prints an array with an object a line.
func printResultsJSON(w io.Writer, results []*simulator.Result) error {
	return printJSONLines(w, results)
}

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

// printResultsCSV prints a header and a row a result, with the names and the numbers of the JSON.
func printResultsCSV(w io.Writer, results []*simulator.Result) error {
	kind := reflect.TypeFor[simulator.Result]()
	var header []string
	var fields []int
	for i := range kind.NumField() {
		name, rest, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ",")
		absent := func(r *simulator.Result) bool { return reflect.ValueOf(*r).Field(i).IsZero() }
		if name == "-" || rest == "omitempty" && !slices.ContainsFunc(results, func(r *simulator.Result) bool { return !absent(r) }) {
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

// printTable prints what people want to know.
func (s *study) printTable(w io.Writer, results []*simulator.Result) error {
	if _, err := fmt.Fprintf(w, "%s: %s samples, %d epochs, the first %d not counted; %s\n", s.trace,
		humanize.Comma(int64(s.base.Trace.Samples())), s.base.Epochs, s.base.SkipEpochs, s.setting()); err != nil {
		return err
	}
	system, sampler, policy := len("system"), len("sampler"), len("policy")
	for _, r := range results {
		system, sampler, policy = max(system, len(r.System)), max(sampler, len(r.Sampler)), max(policy, len(r.Policy))
	}
	// Names stand at the left of their columns, numbers at the right.
	names := fmt.Sprintf("%%-%ds  %%-%ds  %%-%ds", system, sampler, policy)
	var text bytes.Buffer
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, names+"\tcapacity\thits\tof min\tlocal\tsubstituted\tread\tfor others\tbytes read\tgap\tepoch s\tbound s\t\n", "system", "sampler", "policy")
	for _, r := range results {
		fmt.Fprintf(table, names+"\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.4g\t%.4g\t\n", r.System, r.Sampler, r.Policy,
			percentOf(r.Capacity, 1), percentOf(float64(r.Hits), r.Draws), s.ofMin(r, results), percentOf(float64(r.HitsLocal), r.Draws),
			percentOf(float64(r.Substituted), r.Draws), percentOf(float64(r.StorageReads), r.Draws),
			percentOf(float64(r.SubstituteReads), r.Draws), humanize.IBytes(uint64(r.StorageBytes)),
			r.CoverageGapMax, r.EpochSeconds, r.BoundSeconds)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	// A table that is aligned at the right has a margin at the left.
	_, err := fmt.Fprint(w, strings.ReplaceAll("\n"+text.String(), "\n  ", "\n"), tableKey)
	return err
}

const tableKey = `
Hits (local: in the consumer's rank), substituted (another sample was served from memory) and read are shares of the draws; for
others: of what was read, a sample in the place of the one drawn; of min: hits, of those that Bélády's offline optimum has where
its draws are the same; gap: the longest run of epochs in which some sample was not trained on; epoch and bound: seconds by the
time model, and what no cache can beat.
`

// setting says in words what all results have in common.
func (s *study) setting() string {
	text := english.Plural(s.base.Ranks, "rank", "")
	if s.base.TrainersPerRank > 1 {
		text += fmt.Sprintf(" × %d trainers", s.base.TrainersPerRank)
	}
	text += fmt.Sprintf(" × batch size %d", s.base.BatchSize)
	if s.base.Jobs > 1 {
		text += fmt.Sprintf(", %d jobs", s.base.Jobs)
	}
	return text
}

func percentOf[N int | int64](part float64, whole N) string {
	return fmt.Sprintf("%.1f %%", 100*part/float64(max(whole, 1)))
}

// ofMin is a result's hits, as a share of those that the system min has with the same draws; "-" where there is no such result.
func (s *study) ofMin(r *simulator.Result, all []*simulator.Result) string {
	for _, best := range all {
		if best.System == "min" && cmp.Compare(best.Capacity, r.Capacity) == 0 && best.Hits > 0 && s.sameDraws(r, best) {
			return percentOf(float64(r.Hits), best.Hits)
		}
	}
	return "-"
}

// sameDraws reports whether two systems were given the same draws: because the user chose the sampler, or because theirs is the same and
// depends on no scores.
func (s *study) sameDraws(a, b *simulator.Result) bool {
	if s.base.Sampler != "" {
		return true
	}
	sampler, err := scheduler.NewSampler(scheduler.SamplerConfig{Name: a.Sampler, Samples: 1, BatchSize: 1, World: 1})
	return err == nil && !sampler.Weighted() && a.Sampler == b.Sampler && a.Draws == b.Draws
}
