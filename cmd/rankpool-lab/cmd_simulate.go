package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool-lab/internal/simulate"
)

const aboutSimulate = `Simulate replays a training without running it: it draws samples as each
system's sampler would, reports the recorded losses of the drawn samples to the system, and counts
where the samples came from. It runs the same code as the ranks.

LOSSES is a float32 array [epochs, samples] in NumPy's format: the loss that training reports for a
sample if it is drawn in that epoch. Times come from a model of the machine, --cluster.
benchmarks/simulator/README.md explains what is counted and what the model leaves out.

With --nopfs it is the performance simulator of the NoPFS paper instead: its policies on its machine
and data sets, with times of its own model. It needs no losses.`

func newSimulateCommand() *cobra.Command {
	o := &simulate.Options{}
	cmd := &cobra.Command{
		Use:   "simulate (--losses LOSSES.npy | --nopfs SCENARIO)",
		Short: "Compare published caches on recorded losses",
		Long:  aboutSimulate + "\n\n" + exit.Codes,
		Example: "  rankpool-lab simulate --losses L.npy --systems all --capacity 0.1,0.2,0.4 " +
			"--ranks 4 --batch-size 64\n" +
			"  rankpool-lab simulate --losses L.npy --systems lru,shade,rankpool,min --sampler pads " +
			"--plot plots/\n" +
			"  rankpool-lab simulate --nopfs imagenet-1k\n" +
			"  rankpool-lab simulate --list",
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.Register(cmd.Flags())
	return cmd
}
