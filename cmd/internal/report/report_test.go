package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rankpool/cmd/internal/runlog"
	"rankpool/cmd/internal/runlog/runlogtest"
	"rankpool/mpicache/stats"
)

// sections are what a page always has, in order.
var sections = []string{
	"summary", "remarks", "epochs", "sources", "stall", "gpu", "throughput", "latency",
	"importance", "balance",
}

func runOf(t testing.TB, log string) *runlog.Run {
	t.Helper()
	var b runlog.Builder
	broken, err := runlog.Read(strings.NewReader(log), b.Add)
	if err != nil {
		t.Fatal(err)
	}
	b.AddBroken(broken)
	return b.Run()
}

func pageOf(t testing.TB, run *runlog.Run) string {
	t.Helper()
	var page bytes.Buffer
	bound := func(sampled, idle, waited float64) (string, string) {
		return "I/O-bound", fmt.Sprintf("idle %.0f of %.0f, %.0f waiting: I/O-bound", idle, sampled,
			waited)
	}
	if err := Write(&page, run, Options{
		Names: []string{"run.jsonl"}, Version: "test",
		Bound: bound,
	}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, page.String())
	return page.String()
}

var (
	outside    = regexp.MustCompile(`(?i)https?:|//[a-z]|<script|<link|@import|url\(|\son[a-z]+=`)
	ids        = regexp.MustCompile(`\sid="([^"]*)"`)
	notANumber = regexp.MustCompile(`NaN|Inf|ZgotmplZ|%!`)
)

// checkPage checks what holds for every page: it is well-formed and self-contained, has all
// sections, each id once, and no NaN.
func checkPage(t testing.TB, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict = true
	d.Entity = xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
	if found := outside.FindString(page); found != "" {
		t.Errorf("the page needs something else: %q", found)
	}
	_, body, _ := strings.Cut(page, "<body>")
	if found := notANumber.FindStringIndex(body); found != nil {
		t.Errorf("no number: …%s…", body[max(0, found[0]-80):min(len(body), found[1]+20)])
	}
	var seen []string
	for _, m := range ids.FindAllStringSubmatch(page, -1) {
		if slices.Contains(seen, m[1]) {
			t.Errorf("id %s is there twice", m[1])
		}
		seen = append(seen, m[1])
	}
	at := -1
	for _, id := range sections {
		next := slices.Index(seen, id)
		if next <= at {
			t.Errorf("section %s is missing or not in its place", id)
		}
		at = next
	}
}

func TestPageOfACluster(t *testing.T) {
	page := pageOf(t, runOf(t, runlogtest.Cluster().Text()))
	for _, want := range []string{
		"8 nodes trained on train: 6 epochs finished in 1 h 6 min.",
		"Of 71,066,216 samples, 48.6 % came from",
		"After the first epoch, each read ", " on all nodes together, it would read about none.",
		"<strong>I/O-bound.</strong> idle 338 of 3959, 258 waiting.<",
		"Node 2 was restarted at 0:30:55, in epoch 2. The samples in its memory were lost.",
		"Fallback reads in epoch 2: trainers read 304,460 of 10,966,217 samples from storage " +
			"themselves: a rank died, a peer was late, or memory was short.",
		"Node 3 (nid001003) waited for samples 15.7 % of its time, the median node 5.2 %: a read of " +
			"storage took it 13.7 ms, the median node 4.58 ms.",
		"The slab of node 5 (nid001005) shrank from 64 GiB to 48 GiB, the first time at 0:41:10: " +
			"memory was short (cgroup memory.max).",
		"accuracy", `class="area fallback"`, "3,182 events",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{`class="missing"`, "tier", "substituted\""} {
		if _, body, _ := strings.Cut(page, "<body>"); strings.Contains(body, not) {
			t.Errorf("the page has %q", not)
		}
	}
	for _, form := range []string{"desk", "phone"} {
		if plots := strings.Count(page, `<svg class="`+form+`"`); plots != 8 {
			t.Errorf("%d plots of the form %s", plots, form)
		}
	}
	if len(page) > 250_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
}

// TestQuietRun checks that a run without trouble gets no remarks.
func TestQuietRun(t *testing.T) {
	training := runlogtest.Cluster()
	training.SlowNode, training.ShrinkNode, training.DeadNode = -1, -1, -1
	if page := pageOf(t, runOf(t, training.Text())); !strings.Contains(
		page, "Nothing out of the ordinary.") {
		t.Errorf("remarks: %v", remarks(runOf(t, training.Text())))
	}
}

// TestKeptInMemory checks the remark on what restarted nodes still had in memory.
func TestKeptInMemory(t *testing.T) {
	const node = `{"event":"node","time":"2026-03-14T09:00:%02dZ","rank":%d,"seconds":%d,"epoch":1,` +
		`"kept":%d,"kept_of":%d}` + "\n"
	for want, kept := range map[string][2]int{
		"The cache was restarted at 0:00:19, in epoch 1. The samples in its memory were lost.": {},
		"The cache was restarted at 0:00:19, in epoch 1. Kept 1,188 of 1,200 samples in memory; " +
			"what was in memory on one node was lost.": {1200, 0},
		"The cache was restarted at 0:00:19, in epoch 1. Kept 2,376 of 2,400 samples in " +
			"memory.": {1200, 1200},
	} {
		log := fmt.Sprintf(node+node, 10, 0, 10, 0, 0, 10, 1, 10, 0, 0)
		for rank, of := range kept {
			log += fmt.Sprintf(node, 20, rank, 1, of*99/100, of)
		}
		var got Remarks
		restartRemarks(runOf(t, log), &got)
		if len(got) != 1 || got[0].Text != want {
			t.Errorf("got %v, want %q", got, want)
		}
	}
}

// TestTrainingsWithJobNames checks the table of the trainings, and those of the epochs of each.
func TestTrainingsWithJobNames(t *testing.T) {
	const epoch = `{"event":"job","data":"train","job":%q,"epoch":%d,"draws":100,"hits_local":%d,` +
		`"storage_reads":%d,"seconds":4,"stall_seconds":1}` + "\n"
	log := ""
	for _, job := range []string{"<b>", "a"} {
		for e := range 3 {
			log += fmt.Sprintf(epoch, job, e, 20*e, 100-20*e)
		}
	}
	run := runOf(t, log)
	page := pageOf(t, run)
	for _, want := range []string{
		"2 trainings with job names finished 6 epochs.", "Job a<", "Job &lt;b&gt;<",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	tables := trainingTables(run)
	if got := strings.Join(tables[0].Rows[1], "|"); len(tables) != 3 || len(tables[0].Rows) != 2 ||
		!strings.HasPrefix(got, "a|3|12|25.0 %|20.0 %|80.0 %|") ||
		!strings.HasSuffix(got, "|20.0 %|0.0 %|0|300") {
		t.Errorf("%d tables, the second row is %s", len(tables), got)
	}
	if strings.Contains(page, "No epoch was finished.<") {
		t.Error("the page claims that no epoch was finished")
	}
}

// TestMissing checks that a page without some data has a sentence instead, and no empty plot.
func TestMissing(t *testing.T) {
	training := runlogtest.Cluster()
	training.GPUs, training.Machine = 0, false
	bare := training.Text()
	old := `{"event":"epoch","data":"train","draws":10,"epoch":0,"hits_local":1,"storage_reads":9,"storage_bytes":900,"stall_seconds":1,"seconds":10}
{"event":"summary","data":"train","ranks":4,"epochs":1,"draws":10,"wall_seconds":12}
`
	for name, c := range map[string]struct {
		log     string
		missing map[string]string
		says    []string
	}{
		"nothing": {"", map[string]string{
			"sources": noNodeLines, "stall": noNodeLines, "balance": noNodeLines,
		}, []string{
			"The log has no event.", "No epoch was finished.",
			"Whether GPUs were idle, and why, is not in the log.",
		}},
		"an old log of one epoch": {
			old,
			map[string]string{"gpu": noNodeLines, "importance": noImportance},
			[]string{
				"4 nodes trained on train: one epoch finished in 12 s.", "<dd>not in the log</dd>",
				"GPUs were not observed",
			},
		},
		"waiting that was not measured": {
			strings.Replace(old, `"stall_seconds":1`, `"stall_seconds":null`, 1),
			nil,
			[]string{"<dd>–</dd>", notMeasured[:40]},
		},
		"no GPUs, nothing measured": {
			bare,
			map[string]string{"gpu": noGPUs, "latency": noMeasuring},
			[]string{"GPUs were not observed"},
		},
		"GPUs that tell nothing": {
			`{"event":"node","time":"2026-03-14T09:27:03Z","rank":0,"seconds":10,"epoch":0,"machine":{"gpus":[{"uuid":"u","utilisation":null}]}}`,
			map[string]string{"gpu": silentGPUs},
			nil,
		},
		"one epoch": {runlogtest.Training{
			Nodes: 1, Epochs: 1, EpochSeconds: 20, EverySeconds: 10, SlowNode: -1, ShrinkNode: -1,
			DeadNode: -1,
		}.Text(), map[string]string{"gpu": noGPUs}, []string{
			"One node trained", "One node: there is nothing to compare.",
		}},
		"no trainer": {
			`{"event":"node","time":"2026-03-14T09:27:03Z","rank":0,"seconds":10,"epoch":-1}`,
			map[string]string{
				"sources": noTraining, "stall": noTraining,
			},
			[]string{"The log has no summary at its end"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			page := pageOf(t, runOf(t, c.log))
			for id, why := range c.missing {
				if section := sectionOf(page, id); !strings.Contains(html.UnescapeString(section), why) ||
					strings.Contains(section, "<figure") {
					t.Errorf("section %s: %s", id, section)
				}
			}
			for _, text := range c.says {
				if !strings.Contains(page, text) {
					t.Errorf("the page lacks %q", text)
				}
			}
		})
	}
}

func sectionOf(page, id string) string {
	_, after, _ := strings.Cut(page, `<section id="`+id+`">`)
	section, _, _ := strings.Cut(after, "</section>")
	return section
}

// TestSources checks that the stacked sources add up to all draws, with a tier's hits subtracted
// from both kinds.
func TestSources(t *testing.T) {
	var s stats.Sums
	s[stats.HitsLocal], s[stats.HitsRemote], s[stats.TierHits], s[stats.StorageReads],
		s[stats.Substituted] = 60, 20, 40, 15, 5
	want := []float64{30, 10, 40, 5, 15, 0}
	for i, c := range sourcesOf {
		if got := source(&s, c); got != want[i] {
			t.Errorf("%s: %v, want %v", SourceKey(c).Name, got, want[i])
		}
	}
	if names := len(sourceSeries(&s)); names != 6 {
		t.Errorf("%d sources with a tier and substitutes", names)
	}
}

// TestNamesAreEscaped puts markup where a log has names.
func TestNamesAreEscaped(t *testing.T) {
	evil := `</style><script>alert(1)</script>\"'`
	log := `{"event":"node","time":"2026-03-14T09:27:03Z","rank":0,"host":"` + evil +
		`","seconds":10,"epoch":0,"data":"` + evil + `","hits_local":5,"train_seconds":9,` +
		`"machine":{"memory_limit":"` + evil + `","gpus":[{"uuid":"u","name":"` + evil +
		`","utilisation":0.5,"sampled_seconds":5}]}}` + "\n" +
		`{"event":"epoch","data":"` + evil +
		`","epoch":0,"draws":5,"hits_local":5,"fallback_reads":1,"metrics":{"` + evil + `":1}}` + "\n"
	run := runOf(t, log)
	if run.Broken > 0 {
		t.Fatal("the log is broken")
	}
	var page bytes.Buffer
	if err := Write(&page, run, Options{Names: []string{evil}}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, page.String())
}

// TestManyNodes groups nodes that do not fit beside each other.
func TestManyNodes(t *testing.T) {
	training := runlogtest.Cluster()
	training.Nodes, training.Epochs, training.EpochSeconds, training.EverySeconds, training.GPUs = 300,
		1, 30, 10, 0
	page := pageOf(t, runOf(t, training.Text()))
	if bars := strings.Count(page, `<rect class="area wait"`); bars != 2*nodeBars+1 {
		t.Errorf("%d bars of waiting in two forms, and its legend", bars)
	}
	for _, want := range []string{
		"The 24 of 300 nodes that waited longest",
		"The bars are of the 128 of 300 nodes that waited longest.", "node 3 (nid001003): waiting",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestAnyLog makes pages of logs that make little sense.
func TestAnyLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log strings.Builder
		big := rapid.OneOf(rapid.Float64Range(0, 1e10), rapid.Float64Range(0, 10), rapid.Just(0.0))
		whole := rapid.OneOf(rapid.Int64Range(0, 1e18), rapid.Int64Range(0, 100))
		for range rapid.IntRange(0, 12).Draw(t, "lines") {
			epoch := rapid.OneOf(rapid.IntRange(-1, 3), rapid.IntRange(-1, 1<<24-1)).Draw(t, "epoch")
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				fmt.Fprintf(&log,
					`{"event":"node","time":"2026-03-%02dT10:00:%02dZ","rank":%d,"seconds":%g,"epoch":%d,"hits_local":%d,"tier_hits":%d,`+
						`"storage_reads":%d,"stall_seconds":%g,"train_seconds":%g,"slab_bytes":%d,"peer_bytes":%d,"machine":{"storage_reads":%d,"storage_seconds":%g,`+
						`"memory_limit":"x","gpus":[{"utilisation":%g,"sampled_seconds":%g,"idle_seconds":%g}]}}`+"\n",
					rapid.IntRange(1, 28).Draw(t, "day"), rapid.IntRange(0, 59).Draw(t, "second"),
					rapid.IntRange(0, 1<<20-1).Draw(t, "rank"), big.Draw(t, "seconds"), epoch,
					whole.Draw(t, "hits"), whole.Draw(t, "tier"), whole.Draw(t, "reads"), big.Draw(t, "stall"),
					big.Draw(t, "train"), whole.Draw(t, "slab"),
					whole.Draw(t, "peer"), whole.Draw(t, "storage"), big.Draw(t, "latency"),
					big.Draw(t, "utilisation"), big.Draw(t, "sampled"), big.Draw(t, "idle"))
			case 1:
				fmt.Fprintf(&log,
					`{"event":"epoch","epoch":%d,"draws":%d,"hits_local":%d,"planned_hits":%d,"fallback_reads":%d,"stall_seconds":%g,"seconds":%g}`+"\n",
					epoch, whole.Draw(t, "draws"), whole.Draw(t, "hits"), whole.Draw(t, "planned"),
					whole.Draw(t, "fallback"), big.Draw(t, "stall"), big.Draw(t, "seconds"))
			case 2:
				low := rapid.Float64Range(-1e30, 1e30).Draw(t, "low")
				fmt.Fprintf(&log, `{"event":"importance","epoch":%d,"edges":[%g,%g],"counts":[%d]}`+"\n",
					epoch, low, low+rapid.Float64Range(0, 1e29).Draw(t, "width"), whole.Draw(t, "count"))
			case 3:
				fmt.Fprintf(&log, `{"event":"summary","ranks":%d,"wall_seconds":%g}`+"\n",
					rapid.IntRange(0, 9).Draw(t, "ranks"), big.Draw(t, "wall"))
			}
		}
		var page bytes.Buffer
		var b runlog.Builder
		if _, err := runlog.Read(strings.NewReader(log.String()), b.Add); err != nil {
			t.Fatal(err)
		}
		if err := Write(&page, b.Run(), Options{}); err != nil {
			t.Fatal(err)
		}
		_, body, _ := strings.Cut(page.String(), "<body>")
		if found := notANumber.FindStringIndex(body); found != nil {
			t.Errorf("no number: …%s…\n%s", body[max(0, found[0]-80):found[1]], log.String())
		}
	})
}

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{In(rates, 2.5e9), "2.5 GB/s"},
		{In(sizes, 64<<30), "64 GiB"},
		{In(times, 0.00458), "4.58 ms"},
		{In(share, 0.0001), "< 0.1 %"},
		{In(share, 0.5), "50.0 %"},
		{In(times, math.NaN()), "–"},
		{Span(0.0123), "12.3 ms"},
		{Span(90), "90 s"},
		{Span(823), "13 min 43 s"},
		{Span(3960), "1 h 6 min"},
		{moment(3661), "1:01:01"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestUnplannedBytes(t *testing.T) {
	page := pageOf(t, runOf(t, `{"event":"epoch","data":"x","draws":4,"hits_local":3,`+
		`"storage_reads":1,"storage_bytes":6000,"unplanned_bytes":2000,"seconds":2}`))
	want := "Another 2 kB, 25.0 % of all bytes from storage, were not planned"
	if !strings.Contains(page, want) {
		t.Errorf("the page lacks %q", want)
	}
}
