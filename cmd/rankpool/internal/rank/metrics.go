package rank

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/version"
	"rankpool/cmd/rankpool/internal/messages"
	"rankpool/cmd/rankpool/internal/metrics"
	"rankpool/mpicache/stats"
	"rankpool/slurm"
)

// checkMetrics validates the flag --metrics.
func checkMetrics(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if _, bad := strconv.ParseUint(port, 10, 16); addr != "" && (err != nil || bad != nil) {
		return exit.Usagef("--metrics: %q is not an address such as :10477 or 127.0.0.1:10477", addr)
	}
	return nil
}

// metricsJob distinguishes this run from others on the machine: the job's id, else the end of the
// session's name.
func metricsJob(job slurm.Job, session string) string {
	if job.InJob() {
		return job.JobID
	}
	parts := strings.SplitN(filepath.Base(session), "-", 3) // rankpool-<uid>-<job>
	return parts[len(parts)-1]
}

// startMetrics begins to serve statistics at --metrics. read may be called at any time until
// endMetrics returns. If the system chooses the port, the URL is logged.
//
// A port that another process uses (another rank on the same machine) is a warning; other failures
// are errors, but also warnings if the cache is restarted: training must not end because of
// metrics.
func (o *observation) startMetrics(l metrics.Labels, read func() stats.Reading) error {
	addr := o.opt.Metrics
	if addr == "" {
		return nil
	}
	server, err := metrics.Serve(addr, metrics.NewRegistry(l, version.Text, read))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		o.logger.Warn("the port is in use, so this rank serves no metrics there", "metrics", addr)
	case err != nil && o.folder.again:
		o.logger.Warn("metrics are lost from here on, training continues", "error", err)
	case err != nil:
		return fmt.Errorf("--metrics: %w", err)
	default:
		o.metrics = server
		if strings.HasSuffix(addr, ":0") {
			messages.Notice(o.logger, "metrics are shown", "url",
				fmt.Sprintf("http://%s/metrics", server.Addr()))
		}
	}
	return nil
}

// endMetrics ends the export.
func (o *observation) endMetrics() {
	if o.metrics == nil {
		return
	}
	if err := o.metrics.Close(); err != nil {
		o.logger.Warn("metrics cannot be ended", "error", err)
	}
}
