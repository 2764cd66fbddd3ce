package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/simulate"
)

const aboutSimulate = `Simulate trains in thought: it draws samples as each system's sampler would, tells the system the losses that were
recorded for the samples that it drew, and counts where they came from. The code of the systems is the ranks' own.

LOSSES is a float32 array [epochs, samples] in NumPy's format: what training reports for a sample if it is drawn in
that epoch. Times come from a model of the machine, --cluster. docs/simulate.md says what is counted and what is left out.`

func newSimulateCommand() *cobra.Command {
	o := &simulate.Options{}
	cmd := &cobra.Command{
		Use:   "simulate --losses LOSSES.npy",
		Short: "Compare published caches on recorded losses",
		Long:  aboutSimulate + "\n\n" + exit.Table,
		Example: "  rankpool simulate --losses L.npy --systems all --capacity 0.1,0.2,0.4 --ranks 4 --batch-size 64\n" +
			"  rankpool simulate --losses L.npy --systems lru,shade,rankpool,min --sampler pads --plot plots/\n" +
			"  rankpool simulate --list",
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.SkipGiven = cmd.Flags().Changed("skip-epochs")
			return o.Run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.Register(cmd.Flags())
	return cmd
}
