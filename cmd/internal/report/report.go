// Package report renders a run as a page: one self-contained HTML file, with plots as SVG, tables
// and remarks.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"

	"github.com/dustin/go-humanize"

	"rankpool/cmd/internal/runlog"
	"rankpool/mpicache/stats"
)

// Options hold what is not in the log.
type Options struct {
	Names   []string // of the logs
	Version string   // of rankpool
	// Bound judges the seconds in which GPUs were sampled, were idle, and waited for samples, means
	// over the GPUs: a verdict and a sentence, both empty if there is none. nil: no verdict.
	Bound func(sampled, idle, waited float64) (verdict, sentence string)
}

//go:embed page.html
var pageText string

//go:embed style.css
var styleText string

// Style is the style sheet of a page.
func Style() string { return styleText }

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// NewTemplate returns the template of another page, which may use "head", "figure" and "table" of
// this one.
func NewTemplate(text string) *template.Template {
	return template.Must(template.Must(pageTemplate.Clone()).New("other").Parse(text))
}

// Write writes the page of a run to w. The same run and options give the same bytes. The error is
// w's.
func Write(w io.Writer, run *runlog.Run, o Options) error {
	p := page{
		Title:   "rankpool: " + strings.Join(o.Names, ", "),
		Style:   template.CSS(styleText), //nolint:gosec // our own file
		Version: o.Version, Logs: strings.Join(o.Names, ", "), Events: Count(float64(run.Events)),
		Summary: summary(run), Facts: facts(run), Epochs: epochTable(run),
		Passes:    countTable("Passes over other data sets", run.Passes),
		Trainings: trainingTables(run), Remarks: remarks(run), Figures: figures(run),
	}
	p.Verdict, p.Sentence = verdict(run, o.Bound)
	if err := pageTemplate.Execute(w, &p); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// A page is the template's data.
type page struct {
	Title, Version, Logs, Events string
	Style                        template.CSS
	Summary                      []string
	Facts                        []fact
	Verdict, Sentence            string
	Epochs, Passes               *Table // nil: none
	Trainings                    []*Table
	Remarks                      []Remark
	Figures                      []*Figure
}

// A fact is one of the numbers in the head.
type fact struct{ Name, Value string }

// totals returns the sums over the run: over its epochs if it finished any, else, or where several
// trainings shared the cache, over the nodes.
func totals(run *runlog.Run) stats.Sums {
	if len(run.Epochs) == 0 || len(run.Trainings) > 0 {
		return run.Totals()
	}
	return sumsOf(run.Epochs)
}

// waited returns the share of the trainers' time in which they waited for samples.
func waited(s *stats.Sums) float64 {
	return min(1, s.Share(stats.StallSeconds, stats.TrainSeconds))
}

// sumsOf adds up epochs.
func sumsOf(epochs []stats.Epoch) (sums stats.Sums) {
	for i := range epochs {
		sums.Add(epochs[i].Sums)
	}
	return sums
}

// summary describes in plain words what happened.
func summary(run *runlog.Run) []string {
	t := totals(run)
	if run.Events == 0 {
		return []string{"The log has no event."}
	}
	what := "An unknown number of nodes"
	if hosts := hostsOf(run); hosts > 0 && hosts < run.Ranks {
		what = fmt.Sprintf("%d ranks of %s", run.Ranks, Plural(int64(hosts), "node"))
	} else if run.Ranks > 0 {
		what = upper(Plural(int64(run.Ranks), "node"))
	}
	on := ""
	if run.Data != "" {
		on = " on " + run.Data
	}
	text := fmt.Sprintf("%s trained%s: %s finished in %s.", what, on,
		Plural(int64(len(run.Epochs)), "epoch"), Span(run.WallSeconds()))
	if n := len(trainingsOf(run)); n > 0 {
		text += fmt.Sprintf(" %s with job names finished %s.", upper(Plural(int64(n), "training")),
			Plural(int64(len(run.Trainings)), "epoch"))
	}
	if !run.Begin.IsZero() {
		text += " It began on " + run.Begin.UTC().Format("2 January 2006 at 15:04:05") + " UTC."
	}
	all := []string{text}
	if t.Draws() > 0 {
		text = fmt.Sprintf("Of %s samples, %s came from the nodes' memory (%s from the node's own), "+
			"and %s from storage.", Count(t.Draws()),
			Percent(t.Hits()/t.Draws()), Percent(t[stats.HitsLocal]/t.Draws()),
			Percent((t[stats.StorageReads]+t[stats.FallbackReads])/t.Draws()))
		if share := waited(&t); !math.IsNaN(share) {
			text += fmt.Sprintf(" Training waited for samples in %s of its time.", Percent(share))
		}
		if bytes := t[stats.UnplannedBytes]; bytes > 0 {
			text += fmt.Sprintf(" Another %s, %s of all bytes from storage, were not planned: training "+
				"read them outside the pieces of its samples.", In(DecimalSizes, bytes),
				Percent(bytes/(bytes+t[stats.StorageBytes]+t[stats.FallbackBytes])))
		}
		all = append(all, text)
	}
	if len(run.Epochs) > 1 {
		all = append(all, moreMemory(run.Epochs[1:]))
	}
	return all
}

// hostsOf returns how many machines the nodes' lines name; a nameless one is a machine.
func hostsOf(run *runlog.Run) int {
	hosts := map[string]bool{}
	for i := range run.Nodes {
		hosts[cmp.Or(run.Nodes[i].Host, fmt.Sprint(i))] = true
	}
	return len(hosts)
}

// moreMemory says what more memory would have saved in the epochs after the first: they read what
// memory did not hold.
func moreMemory(later []stats.Epoch) string {
	reads, bytes := 0.0, 0.0
	for i := range later {
		sums, n := &later[i].Sums, float64(len(later))
		reads += (sums[stats.StorageReads] + sums[stats.FallbackReads]) / n
		bytes += (sums[stats.StorageBytes] + sums[stats.FallbackBytes]) / n
	}
	if reads < 1 {
		return "After the first epoch nothing was read from storage: more memory would save nothing."
	}
	return fmt.Sprintf("After the first epoch, each read %s samples (%s) from storage. With that "+
		"much more memory, on all nodes together, it would read about none.",
		Count(math.Round(reads)), In(DecimalSizes, bytes))
}

func facts(run *runlog.Run) []fact {
	t := totals(run)
	restarts := "not in the log"
	if len(run.Nodes) > 0 {
		restarts = fmt.Sprint(len(run.Restarts()))
	}
	return []fact{
		{"hits", Percent(stats.Ratio(t.Hits(), t.Draws()))},
		{"waiting for samples", Percent(waited(&t))},
		{"epochs", fmt.Sprint(len(run.Epochs))},
		{"time", Span(run.WallSeconds())},
		{"fallback reads", Count(t[stats.FallbackReads])},
		{"restarts", restarts},
	}
}

const notMeasured = "How long training waited for samples was not measured: it is where a " +
	"DataLoader of PyTorch, or rankpool.loader, asks a sampler of rankpool for its batches."

// verdict returns what limited the run.
func verdict(run *runlog.Run, bound func(sampled, idle, waited float64) (string, string)) (
	string, string,
) {
	if sampled, idle, waited, gpus := run.GPUSeconds(); bound != nil && gpus > 0 {
		if verdict, sentence := bound(sampled, idle, waited); verdict != "" {
			return upper(verdict), strings.TrimSuffix(sentence, ": "+verdict) + "."
		}
	}
	t := totals(run)
	if t[stats.TrainSeconds] == 0 {
		return "", "Whether GPUs were idle, and why, is not in the log."
	}
	if math.IsNaN(t[stats.StallSeconds]) {
		return "", notMeasured
	}
	return "", fmt.Sprintf("GPUs were not observed, so the log does not show whether they were idle. "+
		"Training waited for samples in %s of its time; a faster input could have saved that much at "+
		"most.", Percent(waited(&t)))
}

// Count formats a number of things.
func Count(n float64) string {
	if math.IsNaN(n) {
		return "–"
	}
	return humanize.Comma(int64(math.Round(n)))
}
