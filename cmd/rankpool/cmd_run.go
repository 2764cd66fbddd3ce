package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/launch"
)

const aboutRun = `Run starts the cache, one rank per node, then the training command, and supervises
both. When a rank dies, run restarts the cache while training continues; until then training reads
storage, and gets the same samples in the same order.

Outside Slurm all ranks and trainers run on this machine. In a batch script of Slurm, call it
without srun: it starts two overlapping job steps, the cache and the training command. As a task of
srun or mpirun, one per node, it starts that node's rank and trainers. The training command gets
torch's variables (RANK, WORLD_SIZE, MASTER_ADDR …), the Python package rankpool on PYTHONPATH, and
SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2. Run exits with its exit code, and where Slurm runs
several tasks with srun's, the highest of all: docs/slurm.md.`

func newRunCommand() *cobra.Command {
	var o launch.Options
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND…",
		Short: "Run a training command with a cache",
		Long:  aboutRun,
		Example: "  rankpool run --data /lustre/imagenet --memory 64GiB -- torchrun " +
			"--nproc-per-node 4 train.py\n" +
			"  rankpool run --trainers-per-rank 4 --data images/ -- python train.py\n" +
			"  rankpool run --trainings 4 --data images/ -- " +
			"sh -c 'python train.py --seed $RANKPOOL_TRAINING'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = args
			return o.Run(cmd.Context(), cmd.Flags().Changed)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	o.Register(flags)
	return cmd
}
