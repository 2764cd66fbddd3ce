package summary

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/mpicache/stats"
)

const runLog = `{"event":"start"}
{"event":"epoch","data":"train","epoch":0,"draws":10,"hits_local":1,"storage_reads":9,"seconds":2,"metrics":{"accuracy":0.5}}
{"event":"epoch","data":"train","epoch":0,"draws":100,"hits_local":40,"hits_remote":10,"planned_hits":45,"storage_reads":50,"storage_bytes":2048,"seconds":2,"metrics":{"accuracy":0.5}}
{"event":"pass","data":"test","epoch":0,"draws":7}
not JSON
{"event":"epoch","data":"train","epoch":1,"draws":100,"hits_local":100,"planned_hits":101,"seconds":1.5}
{"event":"epoch","data":"train","epoch":2,"dra`

func TestEpochTable(t *testing.T) {
	log, err := parseLog(strings.NewReader(runLog))
	rows := log.epochs
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d epochs, %v", len(rows), err)
	}
	var out strings.Builder
	if err := printEpochs(&out, rows, 3); err != nil {
		t.Fatal(err)
	}
	want := `  epoch  draws  node-local hits  remote hits  planned hits  window hits  storage reads  storage bytes  fallback reads  stall s  seconds  accuracy
      0    100               40           10            45            5             50        2.0 KiB               0     0.00      2.0    0.5000
      1    100              100            0           101            0              0            0 B               0     0.00      1.5         -
total: epochs 2, draws 200, hits 75.0 %, planned hits 73.0 %, storage reads 50 (2.0 KiB), fallback reads 0, stall 0.00 s of 3.5 s, cache restarts 3
`
	if out.String() != want {
		t.Errorf("table:\n%swant:\n%s", out.String(), want)
	}
}

func TestEpochTableColumns(t *testing.T) {
	var out strings.Builder
	if err := printEpochs(&out, []epochRow{
		{Data: "a", Count: stats.Count{Substituted: 40, HitsLocal: 12, PlannedHits: 45}},
		{Data: "b", Count: stats.Count{StorageReads: 9, SubstituteReads: 4, Evaluated: 7}},
	}, 0); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if f := strings.Fields(lines[0]); f[0] != "data" ||
		!strings.HasSuffix(lines[0], "substituted  of reads for substitutes  evaluated") ||
		!strings.HasSuffix(lines[2], " 0                         4          7") {
		t.Errorf("header %q, second line %q", lines[0], lines[2])
	}
	if !strings.Contains(lines[1], " 45            7 ") {
		t.Errorf("substituted draws are not planned hits:\n%s", out.String())
	}
	out.Reset()
	if err := printEpochs(&out, []epochRow{
		{Count: stats.Count{TierHits: 1234, HitsLocal: 2000, PlannedHits: 500}},
		{},
	}, 0); err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(out.String(), "\n")
	if !strings.HasSuffix(lines[0], "of hits from tier") ||
		!strings.Contains(lines[1], " 500          266 ") ||
		!strings.HasSuffix(lines[1], " 1,234") || !strings.HasSuffix(lines[2], " 0") {
		t.Errorf("with a tier:\n%s", out.String())
	}
}

// TestBrief checks what is printed without --verbose, in at most 80 columns.
func TestBrief(t *testing.T) {
	unmeasured := strings.Replace(runLog, `"seconds":1.5`, `"stall_seconds":null,"seconds":1.5`, 1)
	for name, tt := range map[string]struct {
		log  string
		show Show
		want string
	}{
		"epochs": {runLog, Show{Restarts: 3}, `  epoch   time       waited  from memory  from storage
      0  2.0 s  0.0 s (0 %)       50.0 %   50, 2.0 KiB
      1  1.5 s  0.0 s (0 %)      100.0 %             0
    all  3.5 s  0.0 s (0 %)       75.0 %   50, 2.0 KiB
cache restarts 3
`},
		"waiting that was not measured": {unmeasured, Show{}, `  epoch   time       waited  from memory  from storage
      0  2.0 s  0.0 s (0 %)       50.0 %   50, 2.0 KiB
      1  1.5 s            -      100.0 %             0
    all  3.5 s            -       75.0 %   50, 2.0 KiB
waited: not measured, since no DataLoader of PyTorch asked for the batches
`},
		"no sample": {
			`{"event":"begin","launch":"l","ranks":1,"data":["train","val"]}`,
			Show{},
			"rankpool: training asked for no sample of train: let the script read it with\n" +
				"rankpool.ImageFolder, and draw from it with rankpool.DistributedSampler (docs/python.md)\n",
		},
		"no sample, since it failed": {"", Show{Failed: true}, ""},
		"no epoch, of a cache that died": {
			"", Show{Failed: true, Restarts: 1}, "rankpool: no epoch was finished; cache restarts: 1\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := parseLog(strings.NewReader(tt.log))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := log.Print(&out, tt.show); err != nil || out.String() != tt.want {
				t.Errorf("%v, got\n%swant\n%s", err, out.String(), tt.want)
			}
		})
	}
}

func TestTimes(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0.0 s", 99.94: "99.9 s", 100: "1m40s", 8000.4: "2h13m20s",
	} {
		if got := timeText(seconds); got != want {
			t.Errorf("%v s: %q, want %q", seconds, got, want)
		}
	}
}

func TestReadEpochsFromOffset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(runLog), 0o600); err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[int64]int{
		0: 2, int64(strings.Index(runLog, "not JSON")): 1,
		1 << 20: 2,
	} {
		if log, err := readLog(path, offset); err != nil || len(log.epochs) != want {
			t.Errorf("from %d: %d epochs, %v, want %d", offset, len(log.epochs), err, want)
		}
	}
}

// TestTotalsOfJobs checks two trainings: each has a line of totals, and the last line adds up both.
func TestTotalsOfJobs(t *testing.T) {
	var out strings.Builder
	row := func(job string, epoch int, hits, reads int64) epochRow {
		return epochRow{
			Data: "train", Job: job, Draws: hits + reads,
			Count: stats.Count{Epoch: epoch, HitsLocal: hits, StorageReads: reads, Seconds: 2},
		}
	}
	if err := printEpochs(&out, []epochRow{
		row("b", 0, 10, 90), row("", 0, 50, 50), row("b", 1, 30, 70),
	}, 1); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"job -: epochs 1, draws 100, hits 50.0 %, planned hits 0.0 %, storage reads 50 (0 B)",
		"job b: epochs 2, draws 200, hits 20.0 %, planned hits 0.0 %, storage reads 160 (0 B)",
		"total: epochs 3, draws 300, hits 30.0 %, planned hits 0.0 %, storage reads 210 (0 B)",
	}
	lines := strings.Split(out.String(), "\n")[4:]
	for i, w := range want {
		if !strings.HasPrefix(lines[i], w) {
			t.Errorf("%q, want %q", lines[i], w)
		}
	}
}
