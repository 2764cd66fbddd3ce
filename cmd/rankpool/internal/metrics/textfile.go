package metrics

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TextfileEvery is the interval between writes of a textfile: node_exporter is scraped every 15 s
// or less often.
const TextfileEvery = 15 * time.Second

// A Textfile is a file for node_exporter's textfile collector, which is rewritten periodically.
type Textfile struct {
	path string
	end  chan struct{}
	done chan struct{}
}

// WriteTextfile writes gatherer's metrics to path, whose name must end in ".prom", now and every
// TextfileEvery. Each write is atomic, and the file is readable by everybody. Errors of later
// writes go to failed; the next one may succeed.
//
// It returns the error of the first write.
//
// Source: node_exporter, README, Textfile Collector.
func WriteTextfile(path string, gatherer prometheus.Gatherer, failed func(error)) (
	*Textfile, error,
) {
	write := func() error {
		if err := prometheus.WriteToTextfile(path, gatherer); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		return nil
	}
	if err := write(); err != nil {
		return nil, err
	}
	t := &Textfile{path: path, end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		tick := time.NewTicker(TextfileEvery)
		defer tick.Stop()
		for {
			select {
			case <-t.end:
				return
			case <-tick.C:
			}
			if err := write(); err != nil {
				failed(err)
			}
		}
	}()
	return t, nil
}

// Close stops writing and removes the file, which would describe a rank that is gone.
func (t *Textfile) Close() error {
	close(t.end)
	<-t.done
	if err := os.Remove(t.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
