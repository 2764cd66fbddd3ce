package metrics_test

import (
	"errors"
	"flag"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/mpicache/stats"
)

var update = flag.Bool("update", false, "write the golden files anew")

// full is a rank that reports everything; its numbers are all different.
func full() stats.Reading {
	return stats.Reading{
		Rank: 1, Host: "nid2", Seconds: 100.5, Trainers: 4,
		Progress: stats.Progress{
			Data: "train", Epoch: 3, Batch: 120, Batches: 600,
			Sums: stats.Sums{
				stats.HitsLocal: 1001, stats.HitsRemote: 1002, stats.TierHits: 1003,
				stats.StorageReads: 1004, stats.StorageBytes: 1005, stats.FallbackReads: 1006,
				stats.FallbackBytes: 1007, stats.Substituted: 1008, stats.SubstituteReads: 1020,
				stats.Evaluated: 1021, stats.EvaluatedReads: 1022, stats.StallSeconds: 10.25,
				stats.TrainSeconds: 380.5, stats.PeerBytes: 1009, stats.PackageReads: 1023,
				stats.PackageReadBytes: 1024, stats.PackageWrites: 1025, stats.PackageWriteBytes: 1026,
			},
		},
		SlabBytes: 2001, UsedBytes: 2002, Residents: 2003, ResidentBytes: 2004, Ready: 0.75,
		Kept: 2005, KeptOf: 2006,
		NextPlanned: true,
		Machine: stats.Machine{
			StorageReads: 3001, StorageBytes: 3002, StorageErrors: 3003, StorageSeconds: 3.5,
			MemoryFreeBytes: 3004, MemoryLimit: "the job's control group",
			GPUs: []stats.GPU{
				{
					UUID: "GPU-a", Name: "H200", Index: 0, Utilisation: new(0.5),
					MemoryUsedBytes: new(int64(4001)), MemoryTotalBytes: new(int64(4002)),
					PowerWatts: new(400.5), Celsius: new(55.0), ReceiveBytes: new(4003.0), SendBytes: new(4004.0),
					SampledSeconds: 90, IdleSeconds: 30, WaitedSeconds: 20,
				},
				{UUID: "MIG-b", Index: 1, Utilisation: new(0.0)},
			},
		},
	}
}

// fresh is a rank before training, on a machine without any measurements.
func fresh() stats.Reading { return stats.Reading{Progress: stats.Progress{Epoch: -1}} }

func registry(labels metrics.Labels, s stats.Reading) *prometheus.Registry {
	return metrics.NewRegistry(labels, "v1", func() stats.Reading { return s })
}

var labels = metrics.Labels{Job: "4242", Rank: 1, Host: "nid2"}

func TestNamesFollowTheConventions(t *testing.T) {
	all := full()
	problems, err := testutil.GatherAndLint(registry(labels, all))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// Check that the linter finds mistakes.
	bad, err := promlint.New(strings.NewReader("# TYPE reads_total gauge\nreads_total 1\n")).Lint()
	if err != nil || len(bad) == 0 {
		t.Errorf("the linter finds nothing wrong with a gauge that ends in _total (%v)", err)
	}
}

func TestExposition(t *testing.T) {
	for _, tc := range []struct {
		golden string
		labels metrics.Labels
		stats  stats.Reading
	}{
		{"full.prom", labels, full()},
		{"fresh.prom", metrics.Labels{Job: "pid7-ab", Host: "here"}, fresh()},
	} {
		t.Run(tc.golden, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out.prom")
			if err := prometheus.WriteToTextfile(path, registry(tc.labels, tc.stats)); err != nil {
				t.Fatal(err)
			}
			got := withoutGoVersion(t, path)
			golden := filepath.Join("testdata", tc.golden)
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant %s:\n%s", got, golden, want)
			}
		})
	}
}

// TestNotMeasured checks that time that was not measured has no series, rather than 0 or NaN.
func TestNotMeasured(t *testing.T) {
	s := full()
	s.Sums[stats.StallSeconds] = math.NaN()
	found, err := registry(labels, s).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.GetName() == "rankpool_stall_seconds_total" {
			t.Errorf("%v", f)
		}
	}
}

func withoutGoVersion(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(text), `goversion="`)
	if !found {
		t.Fatalf("no goversion in\n%s", text)
	}
	_, rest, _ := strings.Cut(after, `"`)
	return before + `goversion="GO"` + rest
}

// Two ranks on a machine write two textfiles, which node_exporter gathers together.
func TestRanksHaveNoSeriesInCommon(t *testing.T) {
	all := prometheus.Gatherers{
		registry(labels, full()),
		registry(metrics.Labels{Job: "4242", Rank: 2, Host: "nid2"}, full()),
	}
	if _, err := all.Gather(); err != nil {
		t.Error(err)
	}
}

// A GPU that is listed twice must not end the collection: Prometheus refuses two series with the
// same labels.
func TestTheSameGPUTwice(t *testing.T) {
	s := full()
	s.Machine.GPUs = append(s.Machine.GPUs, s.Machine.GPUs...)
	n, err := testutil.GatherAndCount(registry(labels, s), "rankpool_gpu_utilisation_ratio")
	if err != nil || n != 2 {
		t.Errorf("%d series, %v; want 2", n, err)
	}
}

func TestServe(t *testing.T) {
	s, err := metrics.Serve("127.0.0.1:0", registry(labels, full()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for path, want := range map[string]int{
		"/metrics":      http.StatusOK,
		"/debug/pprof/": http.StatusNotFound,
	} {
		reply, err := http.Get("http://" + s.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil || reply.StatusCode != want {
			t.Errorf("%s: status %d, %v; want %d", path, reply.StatusCode, err, want)
		}
		series := `rankpool_samples_total{host="nid2",hpc_job="4242",rank="1",source="remote"} 1002`
		if want == http.StatusOK && !strings.Contains(string(text), series) {
			t.Errorf("no %s in\n%s", series, text)
		}
	}
	if _, err := metrics.Serve(s.Addr().String(), prometheus.NewRegistry()); !errors.Is(
		err, syscall.EADDRINUSE) {
		t.Errorf("a taken port: %v, want one that wraps EADDRINUSE", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", s.Addr().String()); err == nil {
		t.Error("a closed server accepts")
	}
}

// The documentation names every metric, with its type, and no other.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.HasPrefix(cells[1], " `rankpool_") {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			documented[strings.Trim(name, " `")] = strings.TrimSpace(cells[2])
		}
	}
	all := full()
	families, err := registry(labels, all).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if got, want := documented[f.GetName()], strings.ToLower(f.GetType().String()); got != want {
			t.Errorf("docs/observe.md: %s is %q, want %s", f.GetName(), got, want)
		}
		delete(documented, f.GetName())
	}
	if len(documented) > 0 {
		t.Errorf("docs/observe.md names what there is not: %v", documented)
	}
}
