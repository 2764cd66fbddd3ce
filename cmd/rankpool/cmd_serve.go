package main

import (
	"os"

	"github.com/spf13/cobra"

	"rankpool/cmd/internal/program"
	"rankpool/cmd/rankpool/internal/rank"
)

func newServeCommand() *cobra.Command {
	byHand := new(rank.Options)
	cmd := &cobra.Command{
		Use:    "serve --data DIR [flags]",
		Short:  "Run one rank of the cache (started by run)",
		Hidden: true,
		Long: `serve runs one rank of the cache: it pools this node's memory with that of the other
ranks, stages samples, and serves the node's training processes at its door, a socket in the session
folder.

"rankpool run" starts the ranks itself. To start them by hand, as a job step beside training:

  srun --overlap -K --mpi=pmix --cpu-bind=none -N $SLURM_NNODES -n $SLURM_NNODES \
    rankpool serve --data DIR &
  srun --overlap -K rankpool join -- python train.py
  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool end`,
		Args: program.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := rank.Given(os.Getenv)
			if o == nil && err == nil {
				o, err = byHand, byHand.Check()
			}
			if err != nil {
				return err
			}
			return o.Serve(cmd.Context())
		},
	}
	byHand.RegisterServe(cmd.Flags())
	return cmd
}
