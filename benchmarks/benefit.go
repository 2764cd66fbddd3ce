package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"rankpool/benchmarks/slowfs"
	"rankpool/mpicache/stats"
)

const (
	benefitBatch = 64
	// A sixth of what slowfs opens in a second without limits.
	benefitFilesPerSecond = 1200
)

var benefitSection = section{
	name: "benefit",
	about: "what the cache is worth to a training, as rankpool measures it in its second epoch " +
		"(--tune benefit=always), next to two separate runs, with a cache and with --memory 0: how " +
		"many times as long the last epoch takes without. 12,800 files of 16 KB over slowfs that gives " +
		"1,200 files a second, which is 53 ms a batch, one rank, steps that sleep. The ratio is the " +
		"larger of the two by the smaller.",
	named:   true,
	measure: ratios((*bench).benefit),
}

// benefitRun is a training whose benefit is measured.
type benefitRun struct {
	sampler string
	memory  int // % of the data
	step    time.Duration
}

func (b *bench) benefit() ([]row, error) {
	samples := 12_800
	if b.quick {
		samples = 64 * 160
	}
	slow := slowPFS
	slow.Bandwidth = slowfs.Bytes(benefitFilesPerSecond * 16_000)
	e, end, err := b.emulate(samples, 16_000, slow)
	if err != nil {
		return nil, err
	}
	defer end()
	var rows []row
	for _, c := range []benefitRun{
		{"torch", 100, 25 * time.Millisecond},
		{"torch", 50, 25 * time.Millisecond},
		{"uniform", 50, 40 * time.Millisecond},
		{"torch", 100, 75 * time.Millisecond},
	} {
		r, err := b.benefitOf(e, c)
		if err != nil {
			return rows, fmt.Errorf("%+v: %w", c, err)
		}
		r.tell()
		rows = append(rows, r)
	}
	return rows, nil
}

func (b *bench) benefitOf(e *emulated, c benefitRun) (row, error) {
	with, err := b.trainBenefit(e, c, c.memory, "never")
	if err != nil {
		return row{}, err
	}
	without, err := b.trainBenefit(e, c, 0, "never")
	if err != nil {
		return row{}, err
	}
	probed, err := b.trainBenefit(e, c, c.memory, "always")
	if err != nil {
		return row{}, err
	}
	measured := probed[1].Ratio()
	if math.IsNaN(measured) {
		return row{}, errors.New("no benefit was measured")
	}
	last := len(with) - 1
	shown := without[last].Sums[stats.TrainSeconds] / with[last].Sums[stats.TrainSeconds]
	what := fmt.Sprintf("%s, memory for %d %%, steps of %v: benefit measured / of separate runs",
		c.sampler, c.memory, c.step)
	return ratioRow(what, fmt.Sprintf("%.2f", measured), fmt.Sprintf("%.2f", shown),
		max(measured/shown, shown/measured), atMost, 1.1), nil
}

// trainBenefit trains three epochs, and returns their counts.
func (b *bench) trainBenefit(
	e *emulated, c benefitRun, memory int, benefit string,
) ([]stats.Epoch, error) {
	out, log := filepath.Join(b.dir, "job"), filepath.Join(b.dir, "job.log")
	for _, path := range []string{log, out + ".0", out + ".ready.0"} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	size := fmt.Sprintf("%d%%", memory)
	if memory == 0 {
		size = "0"
	}
	if err := b.runTool([]string{
		"--data", e.Dir(), "--memory", size, "--tune", "progress=0,benefit=" + benefit, "--log", log,
	}, "jobs.py", "--out", out, "--sampler", c.sampler, "--trainings", "1", "--epochs", "3",
		"--batch", fmt.Sprint(benefitBatch), "--step-seconds",
		fmt.Sprint(c.step.Seconds())); err != nil {
		return nil, err
	}
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var epochs []stats.Epoch
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte(`{"event":"epoch"`)) {
			continue
		}
		var line stats.Epoch
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("the run log: %w", err)
		}
		epochs = append(epochs, line)
	}
	if err := lines.Err(); err != nil || len(epochs) != 3 {
		return nil, errors.Join(err, fmt.Errorf("the run log has %d epochs, want 3", len(epochs)))
	}
	return epochs, nil
}
