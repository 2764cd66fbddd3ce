package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool-lab/internal/compare"
)

const aboutCompare = `Compare runs the same training under each of several systems, one after the other,
each from an empty cache, and compares the results: accuracy against time, epochs and samples
trained, the time to an accuracy, hits, substitutions, storage reads and bytes, and waiting. It
prints tables and writes a page, which needs no network, to the output folder.

Training must draw with the sampler "system", and call sampler.metric("accuracy", SHARE) at the end
of each epoch. "{seed}" in the command becomes the seed. A system that ranks cannot run, or whose
training fails, is listed with the reason.

Results are kept in the output folder: called again, compare resumes where it was interrupted, and
trains only what is missing. See docs/simulate.md.`

func newCompareCommand() *cobra.Command {
	o := &compare.Options{}
	cmd := &cobra.Command{
		Use:   "compare [flags] -- COMMAND…",
		Short: "Train under several systems, and compare the results",
		Long:  aboutCompare + "\n\n" + exit.Codes,
		Example: "  rankpool-lab compare --data images/ --memory 20% -- \\\n" +
			"      python train.py --sampler system\n" +
			"  rankpool-lab compare --systems lru,shade,rankpool --seeds 3 --slowfs lustre.toml \\\n" +
			"      --data images/ -- \\\n" +
			"      python train.py --sampler system --seed {seed}",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.Run(cmd.Context(), cmd.Flags(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	o.Register(flags)
	return cmd
}
