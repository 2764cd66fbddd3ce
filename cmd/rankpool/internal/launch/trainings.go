package launch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/world"
	"rankpool/slurm"
)

// Several trainings of one command (--trainings N) share the cache: each is a job of its own, with
// its own ranks 0, 1, … and its share of the GPUs, and goes on when another one fails.

// checkTrainings returns an error if several trainings cannot be started in this form.
func (o *Options) checkTrainings(job slurm.Job, f form) error {
	switch {
	case o.trainings < 1:
		return exit.Usagef("--trainings must be at least 1, not %d", o.trainings)
	case o.trainings == 1:
		return nil
	case f != FormLocal:
		return exit.Usagef("--trainings: run starts several trainings on one machine; on %d nodes "+
			"start the cache and each training as a step of its own (docs/jobs.md)",
			max(job.Nodes, 2))
	case o.requeue != "":
		return exit.Usagef("--trainings: several trainings cannot be requeued together; start the " +
			"cache and each training as a step of its own (docs/jobs.md)")
	}
	return nil
}

// trainingEnv is the environment of a training among several: its number, its name for the cache,
// and its GPUs.
func trainingEnv(env []string, training, of int) []string {
	get, set := world.Lookup(env), map[string]string{}
	name := "training-" + strconv.Itoa(training)
	if all := get("RANKPOOL_JOB"); all != "" {
		name = all + "-" + strconv.Itoa(training)
	}
	set["RANKPOOL_TRAINING"], set["RANKPOOL_JOB"] = strconv.Itoa(training), name
	gpus := strings.Split(get("CUDA_VISIBLE_DEVICES"), ",")
	if share := len(gpus) / of; gpus[0] != "" && share > 0 {
		set["CUDA_VISIBLE_DEVICES"] = strings.Join(gpus[training*share:][:share], ",")
	}
	return world.WithEnv(env, set)
}

// prefixed writes lines to a file that several processes write to, each line whole and with a
// prefix. A carriage return ends a line, too: it is that of a progress bar.
type prefixed struct {
	to     io.Writer
	mu     *sync.Mutex // of the file
	prefix string
	rest   []byte // of a line that has not ended
}

// maxLine is how much of a line is held back until it ends.
const maxLine = 64 << 10

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		end := bytes.IndexAny(p.rest, "\n\r") + 1
		if end == 0 && len(p.rest) < maxLine {
			return len(b), nil
		}
		if end == 0 {
			end = len(p.rest)
		}
		line := p.rest[:end]
		if bytes.HasPrefix(p.rest[end-1:], []byte("\r\n")) {
			line = p.rest[:end+1]
		}
		if err := p.print(line); err != nil {
			return 0, err
		}
		p.rest = p.rest[len(line):]
	}
}

// print prints one line, and ends it if nobody has.
func (p *prefixed) print(line []byte) error {
	text := append([]byte(p.prefix), bytes.TrimRight(line, "\r\n")...)
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.to.Write(append(text, '\n'))
	return err
}

// end prints what is left of a last line.
func (p *prefixed) end() {
	if len(p.rest) > 0 {
		_ = p.print(p.rest) // a stdout that is closed ends training as it writes
		p.rest = nil
	}
}

var outputs, messages sync.Mutex // of stdout and stderr

// prefixes returns what a trainer of a training among several writes its stdout and stderr to.
func prefixes(training int) (out, err *prefixed) {
	prefix := fmt.Sprintf("[%d] ", training)
	return &prefixed{to: os.Stdout, mu: &outputs, prefix: prefix},
		&prefixed{to: os.Stderr, mu: &messages, prefix: prefix}
}
