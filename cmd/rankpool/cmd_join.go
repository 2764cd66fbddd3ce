package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/launch"
)

// newJoinCommand becomes the training command. srun starts it once per trainer, by hand or for
// "rankpool run".
func newJoinCommand() *cobra.Command {
	var session, job string
	cmd := &cobra.Command{
		Use:   "join [--session DIR] [--job NAME] -- COMMAND…",
		Short: "Run a training command with the cache that \"run\" started in this job",
		Long: `join waits until this node's rank of the cache is ready, and then replaces itself
with the training command. It sets the variables that "rankpool run" sets: RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT according to Slurm's numbering of the
tasks, RANKPOOL_SESSION, RANKPOOL_SOCKET and PYTHONPATH. For torchrun, with one task per node, it
also sets PET_NNODES, PET_NODE_RANK and the rendezvous, or PET_MASTER_PORT on a single node.

With --job the command is a training of that name. Trainings with different names share the cache,
each with its own sampler, seed, batch size and number of trainers.`,
		Example: `  rankpool run --data DIR -- sleep infinity &
  srun --overlap -K rankpool join --job a -- python train.py
  kill $!; wait`,
		RunE: func(_ *cobra.Command, args []string) error { return launch.Join(session, job, args) },
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().StringVar(&session, "session", "",
		"folder of the run on this node (default: by job, in /dev/shm)")
	cmd.Flags().StringVar(&job, "job", "",
		"name of the training, where several share the cache: sets RANKPOOL_JOB")
	return cmd
}
