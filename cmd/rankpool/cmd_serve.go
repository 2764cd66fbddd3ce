package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/rank"
)

func newServeCommand() *cobra.Command {
	var o rank.Options
	cmd := &cobra.Command{
		Use:   "serve --data DIR [flags]",
		Short: "Be one rank of the cache (run starts it)",
		Long: `serve is one rank of the cache: it pools this node's memory with that of the other ranks, stages samples
and serves the node's training processes at its door, a socket in the session folder.

"rankpool run" starts the ranks itself. By hand, as a step of its own beside training:

  srun --overlap -K --mpi=pmix --cpu-bind=none -N $SLURM_NNODES -n $SLURM_NNODES rankpool serve --data DIR &
  srun --overlap -K rankpool join -- python train.py
  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool end`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return err
			}
			return o.Serve(cmd.Context())
		},
	}
	o.Register(cmd.Flags())
	o.MPI.Register(cmd.Flags())
	cmd.Flags().IntVar(&o.Trainers.PerRank, "trainers-per-rank", 0, "for --memory auto: training processes a rank (default: the job's GPUs here; where it has none, 1)")
	cmd.Flags().StringVar(&o.Session, "session", "", "folder of the run on this node; made if it is not there (default: by job, in /dev/shm)")
	cmd.Flags().BoolVar(&o.Together, "end-together", false, "told to end, wait until all ranks were")
	cmd.Flags().StringVar(&o.Launch, "launch", "", "what the ranks of one launch have in common")
	cmd.Flags().IntVar(&o.World, "world", 0, "how many ranks the launch has")
	cmd.Flags().StringArrayVar(&o.Identities, "identity", nil, "NAME=DIGEST of a data set that the run began with")
	cmd.Flags().StringVar(&o.Hosts, "hosts", "", "the nodes that the job began with, where it has lost some: folders keep their numbers")
	for _, name := range []string{"end-together", "hosts", "identity", "launch", "world"} {
		_ = cmd.Flags().MarkHidden(name) // it is there: the lines above
	}
	return cmd
}
