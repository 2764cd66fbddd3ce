package rank

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/mpicache/stats"
	"rankpool/slurm"
)

func TestCheckMetrics(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		addr, file, complaint string
	}{
		{"", "", ""},
		{":10477", folder, ""},
		{"127.0.0.1:0", folder + "/new/", ""},
		{"[::1]:10477", folder + "/x.prom", ""},
		{"10477", "", "--metrics: "},
		{":http", "", "--metrics: "},
		{":70000", "", "--metrics: "},
		{"", folder + "/x.txt", "--metrics-file: "},
	} {
		file := tc.file
		err := checkMetrics(tc.addr, &file)
		if (err == nil) != (tc.complaint == "") ||
			err != nil && !strings.HasPrefix(err.Error(), tc.complaint) {
			t.Errorf("%q, %q: %v, want %q…", tc.addr, tc.file, err, tc.complaint)
		}
		var status *exit.StatusError
		if err != nil && (!errors.As(err, &status) || status.Code != exit.Misuse) {
			t.Errorf("%q, %q: not an error of usage", tc.addr, tc.file)
		}
	}
	t.Chdir(folder)
	for name, want := range map[string]string{
		".": folder + "/", "x.prom": folder + "/x.prom",
		"new/": folder + "/new/",
	} {
		if err := checkMetrics("", &name); err != nil || name != want {
			t.Errorf("%q, %v; want %q", name, err, want)
		}
	}
}

func TestTextfilePath(t *testing.T) {
	folder := t.TempDir()
	for _, tc := range []struct {
		file string
		rank int
		want string
	}{
		{folder, 3, folder + "/rankpool_77_r3.prom"},
		{"/not/there/", 0, "/not/there/rankpool_77_r0.prom"},
		{folder + "/x.prom", 0, folder + "/x.prom"},
		{folder + "/x.prom", 2, folder + "/x_r2.prom"},
	} {
		if got := textfilePath(tc.file, metrics.Labels{Job: "77", Rank: tc.rank}); got != tc.want {
			t.Errorf("%s, rank %d: %s, want %s", tc.file, tc.rank, got, tc.want)
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
	dir := t.TempDir()
	stats := func() stats.Reading {
		return stats.Reading{Progress: stats.Progress{Epoch: -1, Sums: stats.Sums{stats.HitsLocal: 12}}}
	}
	var logged bytes.Buffer
	log := messages.New(&logged, messages.Options{})
	start := func(addr, file string) (stop func(), err error) {
		r := &observation{
			opt:    &Options{CacheOptions: CacheOptions{Metrics: addr, MetricsFile: file}},
			folder: &ownFolder{}, logger: log,
		}
		return r.endMetrics, r.startMetrics(metrics.Labels{Job: "77", Rank: 1, Host: "h"}, stats)
	}
	stop, err := start("127.0.0.1:0", dir)
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
	file, err := os.ReadFile(filepath.Join(dir, "rankpool_77_r1.prom"))
	want := `rankpool_samples_total{host="h",hpc_job="77",rank="1",source="local"} 12`
	if err != nil || !strings.Contains(string(file), want) ||
		!strings.Contains(string(text), want) {
		t.Errorf("no %s in\n%s\nor in\n%s\n%v", want, text, file, err)
	}
	// The other rank on the machine finds the port in use, and continues.
	addr := strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/metrics")
	other, err := start(addr, "")
	if err != nil || !strings.Contains(logged.String(), addr) {
		t.Errorf("a taken port: %v, logged %q", err, logged.String())
	}
	other()
	stop()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files are left: %v", left)
	}
	// What cannot work is an error, and its end leaves no server behind.
	logged.Reset()
	stop, err = start("127.0.0.1:0", dir+"/no/")
	if err == nil || !strings.HasPrefix(err.Error(), "--metrics-file: ") {
		t.Errorf("a folder that is not there: %v", err)
	}
	stop()
	_, url, _ = strings.Cut(strings.TrimSuffix(logged.String(), ")\n"), "url: ")
	if reply, err := http.Get(url); url == "" || err == nil {
		t.Errorf("%s is served: %v", url, reply)
	}
	if _, err := start("203.0.113.1:1", ""); err == nil ||
		!strings.HasPrefix(err.Error(), "--metrics: ") {
		t.Errorf("an address of another machine: %v", err)
	}
}
