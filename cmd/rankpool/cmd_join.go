package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/launch"
)

// newJoinCommand is what srun starts once a trainer, by hand or for "rankpool run": it becomes the training command.
func newJoinCommand() *cobra.Command {
	var session string
	cmd := &cobra.Command{
		Use:   "join [--session DIR] -- COMMAND…",
		Short: "Be one task of a training step beside the cache that \"serve\" started",
		Long: `join waits until this node's rank of the cache is ready, and becomes the training command. It sets what "rankpool run" sets:
RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT as Slurm numbers the tasks, RANKPOOL_SESSION and
RANKPOOL_SOCKET, PYTHONPATH, and for torchrun, where a node has one task, PET_NNODES, PET_NODE_RANK and the rendezvous, or on one node
PET_MASTER_PORT.`,
		Example: `  srun --overlap -K --mpi=pmix --cpu-bind=none -N $SLURM_NNODES -n $SLURM_NNODES rankpool serve --data DIR &
  srun --overlap -K rankpool join -- python train.py
  srun --overlap -N $SLURM_NNODES -n $SLURM_NNODES rankpool end`,
		RunE: func(_ *cobra.Command, args []string) error { return launch.Join(session, args) },
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&session, "session", "", "folder of the run on this node (default: by job, in /dev/shm)")
	return cmd
}
