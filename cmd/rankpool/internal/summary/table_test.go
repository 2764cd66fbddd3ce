package summary

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const runLog = `{"event":"start"}
{"event":"epoch","data":"train","epoch":0,"draws":10,"hits_local":1,"storage_reads":9,"seconds":2,"metrics":{"accuracy":0.5}}
{"event":"epoch","data":"train","epoch":0,"draws":100,"hits_local":40,"hits_remote":10,"planned_hits":45,"storage_reads":50,"storage_bytes":2048,"seconds":2,"metrics":{"accuracy":0.5}}
{"event":"pass","data":"test","epoch":0,"draws":7}
not JSON
{"event":"epoch","data":"train","epoch":1,"draws":100,"hits_local":100,"planned_hits":101,"seconds":1.5}
{"event":"epoch","data":"train","epoch":2,"dra`

// TestBrief checks what is printed, in at most 80 columns.
func TestBrief(t *testing.T) {
	unmeasured := strings.Replace(runLog, `"seconds":1.5`, `"stall_seconds":null,"seconds":1.5`, 1)
	for name, tt := range map[string]struct {
		log  string
		show Show
		want string
	}{
		"epochs": {runLog, Show{Restarts: 3, Resumed: true}, `  epoch   time       waited  from memory  from storage
      0  2.0 s  0.0 s (0 %)       50.0 %   50, 2.0 KiB
      1  1.5 s  0.0 s (0 %)      100.0 %             0
    all  3.5 s  0.0 s (0 %)       75.0 %   50, 2.0 KiB
these are the epochs of this run; the run log has those of earlier runs, too
cache restarts 3
`},
		"waiting that was not measured": {unmeasured, Show{}, `  epoch   time       waited  from memory  from storage
      0  2.0 s  0.0 s (0 %)       50.0 %   50, 2.0 KiB
      1  1.5 s            -      100.0 %             0
    all  3.5 s            -       75.0 %   50, 2.0 KiB
waited: not measured, since no DataLoader of PyTorch asked for the batches
`},
		"bytes that were not planned": {
			`{"event":"epoch","data":"x","draws":4,"hits_local":4,"unplanned_bytes":2048,"seconds":2}`,
			Show{},
			`  epoch   time       waited  from memory  from storage
      0  2.0 s  0.0 s (0 %)      100.0 %             0
not planned: 2.0 KiB that training read from storage, outside the pieces of
its samples (docs/data.md)
`,
		},
		"no sample": {
			`{"event":"begin","launch":"l","ranks":1,"data":["train","val"]}`,
			Show{},
			"rankpool: training asked for no sample of train: let the script read it with\n" +
				"rankpool.ImageFolder or rankpool.Arrays, in a DataLoader (docs/python.md)\n",
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
		if log, err := readLog(path, offset); err != nil || len(log.run.Epochs) != want {
			t.Errorf("from %d: %d epochs, %v, want %d", offset, len(log.run.Epochs), err, want)
		}
	}
}
