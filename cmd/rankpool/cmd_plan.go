package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"rankpool/benchmarks/planning"
	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/memory"
	"rankpool/cmd/rankpool/internal/simulate"
	"rankpool/scheduler"
)

// planRounds is how many plans are timed. The fastest counts, since other programs can only slow a
// plan down.
const planRounds = 3

// A planCost is the output of "rankpool plan".
type planCost struct {
	Samples        int     `json:"samples"`
	Ranks          int     `json:"ranks"`
	Sampler        string  `json:"sampler"`
	Draws          int     `json:"draws"`
	Batches        int     `json:"batches"`
	PlanSeconds    float64 `json:"plan_seconds"`
	BytesPerSample float64 `json:"bytes_per_sample"`
}

func newPlanCommand() *cobra.Command {
	cfg := planning.Config{Rounds: planRounds}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plan --samples N --ranks R",
		Short: "Measure the cost of planning an epoch",
		Long: `Plan makes the plan that every rank makes before an epoch (all of its draws, and who
consumes them) on one core of this machine. It prints the time, the best of three, and the memory
needed in addition to the scores.`,
		Example: "  rankpool plan --samples 14200000 --ranks 1024 --json",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPlan(cfg); err != nil {
				return err
			}
			measured, err := planning.Measure(cfg)
			if err != nil {
				return err
			}
			return printPlanCost(cmd.OutOrStdout(), asJSON, planCost{
				Samples: cfg.Samples, Ranks: cfg.Ranks, Sampler: cfg.Sampler, Draws: measured.Draws,
				Batches:        measured.Batches,
				PlanSeconds:    slices.Min(measured.Seconds),
				BytesPerSample: float64(measured.PeakBytes) / float64(cfg.Samples),
			})
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&cfg.Samples, "samples", 0, "samples of the data set")
	flags.IntVar(&cfg.Ranks, "ranks", 1, "ranks, each with one trainer")
	flags.IntVar(&cfg.BatchSize, "batch-size", 64, "batch size of a trainer")
	flags.StringVar(&cfg.Sampler, "sampler", "pads", "one of "+simulate.KnownSamplers())
	flags.Int64Var(&cfg.Seed, "seed", 0, "seed of the draws")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

func checkPlan(cfg planning.Config) error {
	if cfg.Samples < 1 {
		return exit.Usagef("--samples must be at least 1, not %d", cfg.Samples)
	}
	if err := simulate.CheckTrainers(cfg.Ranks, cfg.BatchSize); err != nil {
		return err
	}
	return simulate.CheckName("--sampler", cfg.Sampler, scheduler.SamplerNames())
}

func printPlanCost(w io.Writer, asJSON bool, c planCost) error {
	if asJSON {
		return json.NewEncoder(w).Encode(c)
	}
	_, err := fmt.Fprintf(w, "Planning %s draws (%s) in %s batches for %s ranks takes %.3g s on "+
		"one core.\nIt needs %.3g bytes a sample in addition to the scores, %s in all.\n",
		humanize.Comma(int64(c.Draws)), c.Sampler, humanize.Comma(int64(c.Batches)),
		humanize.Comma(int64(c.Ranks)), c.PlanSeconds,
		c.BytesPerSample, memory.Text(int64(c.BytesPerSample*float64(c.Samples))))
	return err
}
