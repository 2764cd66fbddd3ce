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

// textfileSuffix ends the name of a file that node_exporter's textfile collector reads.
const textfileSuffix = ".prom"

// checkMetrics validates the flags --metrics and --metrics-file, and makes the path absolute.
func checkMetrics(addr string, path *string) error {
	if addr != "" {
		_, port, err := net.SplitHostPort(addr)
		if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil {
			return exit.Usagef("--metrics: %q is not an address such as :10477 or 127.0.0.1:10477",
				addr)
		}
	}
	if *path == "" {
		return nil
	}
	folder := namesFolder(*path)
	if !folder && !strings.HasSuffix(*path, textfileSuffix) {
		return exit.Usagef("--metrics-file: %s is neither a folder nor a name that ends in %s, "+
			"and node_exporter reads no others", *path, textfileSuffix)
	}
	abs, err := filepath.Abs(*path)
	if err != nil {
		return err
	}
	if folder {
		abs += "/" // even on a node where it is missing
	}
	*path = abs
	return nil
}

func namesFolder(path string) bool { return strings.HasSuffix(path, "/") || IsFolder(path) }

// textfilePath returns the file to which a rank writes its metrics: a name per rank in a folder,
// else the file itself for rank 0, and its name with _rR for rank R.
func textfilePath(file string, l metrics.Labels) string {
	if namesFolder(file) {
		return filepath.Join(file, fmt.Sprintf("rankpool_%s_r%d%s", l.Job, l.Rank, textfileSuffix))
	}
	if l.Rank == 0 {
		return file
	}
	return fmt.Sprintf("%s_r%d%s", strings.TrimSuffix(file, textfileSuffix), l.Rank, textfileSuffix)
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

// startMetrics begins to export statistics: at --metrics over HTTP, and for node_exporter in
// --metrics-file, or in a file of the folder of that name. read may be called at any time until
// endMetrics returns. If the system chooses the port, the URL is logged.
//
// A port that another process uses (another rank on the same machine) is a warning; other failures
// are errors, but also warnings if the cache is restarted.
func (o *observation) startMetrics(l metrics.Labels, read func() stats.Reading) error {
	const lost = "metrics are lost from here on, training continues"
	registry := metrics.NewRegistry(l, version.Text, read)
	if addr := o.opt.Metrics; addr != "" {
		server, err := metrics.Serve(addr, registry)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			o.logger.Warn("the port is in use, so this rank serves no metrics there", "metrics", addr)
		case err != nil:
			if err := o.unlessAgain(lost, fmt.Errorf("--metrics: %w", err)); err != nil {
				return err
			}
		default:
			o.metrics = append(o.metrics, server)
			if strings.HasSuffix(addr, ":0") {
				messages.Notice(o.logger, "metrics are shown", "url",
					fmt.Sprintf("http://%s/metrics", server.Addr()))
			}
		}
	}
	if file := o.opt.MetricsFile; file != "" {
		written, err := metrics.WriteTextfile(textfilePath(file, l), registry, func(err error) {
			o.logger.Warn("metrics cannot be written", "error", err)
		})
		if err != nil {
			return o.unlessAgain(lost, fmt.Errorf("--metrics-file: %w", err))
		}
		o.metrics = append(o.metrics, written)
	}
	return nil
}

// endMetrics ends the export, and removes the file.
func (o *observation) endMetrics() {
	for _, m := range o.metrics {
		if err := m.Close(); err != nil {
			o.logger.Warn("metrics cannot be ended", "error", err)
		}
	}
}

// unlessAgain returns an error that keeps a cache from starting. If the cache is only restarted, it
// logs the error with a message instead, and returns nil: training must not end because a file that
// nobody needs can no longer be written.
func (o *observation) unlessAgain(message string, err error) error {
	if err == nil || !o.folder.again {
		return err
	}
	o.logger.Warn(message, "error", err)
	return nil
}
