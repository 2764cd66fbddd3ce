package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/world"
)

// Several trainings of one command (--trainings N) share the cache: each is a job of its own, with
// its own ranks 0, 1, … and its share of the GPUs, and continues when another one fails. On several
// nodes of Slurm each is a step.

// checkTrainings returns an error if several trainings cannot be started in this form.
func (o *Options) checkTrainings(f form) error {
	switch {
	case o.trainings < 1:
		return exit.Usagef("--trainings must be at least 1, not %d", o.trainings)
	case o.trainings == 1:
		return nil
	case f == formTask:
		return exit.Usagef("--trainings: run is itself a task of srun or mpirun here; call it in the " +
			"batch script, without srun (docs/jobs.md)")
	case o.requeue != "":
		return exit.Usagef("--trainings: several trainings cannot be requeued together; start the " +
			"cache and each training as separate steps (docs/jobs.md)")
	}
	return nil
}

const trainingsVariable = "RANKPOOL_TRAININGS" // how many there are, in a training's environment

// trainingEnv is the environment of a training among several: its number, how many there are, and
// its name for the cache.
func trainingEnv(env []string, training, of int) []string {
	name := cmp.Or(world.Lookup(env)("RANKPOOL_JOB"), "training")
	return world.WithEnv(env, map[string]string{
		"RANKPOOL_TRAINING": strconv.Itoa(training), trainingsVariable: strconv.Itoa(of),
		"RANKPOOL_JOB": fmt.Sprintf("%s-%d", name, training),
	})
}

// ownGPUs limits the GPUs in the environment of a training among several to its share; with fewer
// GPUs than trainings, each has all.
func ownGPUs(env []string) []string {
	get := world.Lookup(env)
	training, _ := strconv.Atoi(get("RANKPOOL_TRAINING"))
	of, _ := strconv.Atoi(get(trainingsVariable)) // 0: it is the only one
	gpus := strings.Split(get("CUDA_VISIBLE_DEVICES"), ",")
	share := len(gpus) / max(of, 1)
	if of < 2 || gpus[0] == "" || share == 0 || training < 0 || training >= of {
		return env
	}
	return world.WithEnv(env, map[string]string{
		"CUDA_VISIBLE_DEVICES": strings.Join(gpus[training*share:][:share], ","),
	})
}

// prefixed writes lines to a file that several processes write to, each line whole and with a
// prefix. A carriage return also ends a line: progress bars write them.
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

// print prints one line, and adds a line feed if it has none.
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
		_ = p.print(p.rest) // if stdout is closed, training fails as it writes
		p.rest = nil
	}
}

var stdout, stderr sync.Mutex // of stdout and stderr

// prefixes returns what a trainer of a training among several writes its stdout and stderr to.
func prefixes(training int) (out, err *prefixed) {
	prefix := fmt.Sprintf("[%d] ", training)
	return &prefixed{to: os.Stdout, mu: &stdout, prefix: prefix},
		&prefixed{to: os.Stderr, mu: &stderr, prefix: prefix}
}
