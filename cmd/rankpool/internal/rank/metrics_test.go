package rank

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/mpicache/stats"
	"rankpool/slurm"
)

func TestCheckMetrics(t *testing.T) {
	for addr, good := range map[string]bool{
		"": true, ":10477": true, "127.0.0.1:0": true, "[::1]:10477": true,
		"10477": false, ":http": false, ":70000": false,
	} {
		err := checkMetrics(addr)
		var status *exit.StatusError
		if (err == nil) != good || err != nil && (!strings.HasPrefix(err.Error(), "--metrics: ") ||
			!errors.As(err, &status) || status.Code != exit.Misuse) {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestMetricsJob(t *testing.T) {
	for _, tc := range []struct{ job, session, want string }{
		{"99", "/dev/shm/rankpool-0-slurm99", "99"},
		{"", "/dev/shm/rankpool-1000-pid12-00ab", "pid12-00ab"},
		{"", "/run/mine", "mine"},
	} {
		if got := metricsJob(slurm.Job{JobID: tc.job}, tc.session); got != tc.want {
			t.Errorf("%q, %s: %s, want %s", tc.job, tc.session, got, tc.want)
		}
	}
}

func TestStartMetrics(t *testing.T) {
	stats := func() stats.Reading {
		return stats.Reading{Progress: stats.Progress{Epoch: -1, Sums: stats.Sums{stats.HitsLocal: 12}}}
	}
	var logged bytes.Buffer
	log := messages.New(&logged, messages.Options{})
	start := func(addr string) (stop func(), err error) {
		r := &observation{
			opt:    &Options{CacheOptions: CacheOptions{Metrics: addr}},
			folder: &ownFolder{}, logger: log,
		}
		return r.endMetrics, r.startMetrics(metrics.Labels{Job: "77", Rank: 1, Host: "h"}, stats)
	}
	stop, err := start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, url, found := strings.Cut(strings.TrimSuffix(logged.String(), ")\n"),
		"metrics are shown (url: ")
	if !found {
		t.Fatalf("logged %q", logged.String())
	}
	reply, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(reply.Body)
	reply.Body.Close()
	want := `rankpool_samples_total{host="h",hpc_job="77",rank="1",source="local"} 12`
	if !strings.Contains(string(text), want) {
		t.Errorf("no %s in\n%s", want, text)
	}
	// The other rank on the machine finds the port in use, and continues.
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	other, err := start(addr)
	if err != nil || !strings.Contains(logged.String(), addr) {
		t.Errorf("a taken port: %v, logged %q", err, logged.String())
	}
	other()
	stop()
	if reply, err := http.Get(url); url == "" || err == nil {
		t.Errorf("%s is served: %v", url, reply)
	}
	if _, err := start("203.0.113.1:1"); err == nil ||
		!strings.HasPrefix(err.Error(), "--metrics: ") {
		t.Errorf("an address of another machine: %v", err)
	}
}
