package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/internal/exit"
	"rankpool/cmd/rankpool/internal/launch"
)

const aboutRun = `Run starts the cache, one rank per node, then the training command, and supervises
both. When a rank dies, run restarts the cache while training continues; until then training reads
storage, and gets the same samples in the same order.

Outside Slurm all ranks and trainers run on this machine. In a batch script of Slurm, call it
without srun: it starts two overlapping job steps, the cache and the training command. As a task of
srun or mpirun, one per node, it starts that node's rank and trainers.

The training command inherits RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT, and finds the Python package rankpool on PYTHONPATH (RANKPOOL_PYTHON=no leaves
PYTHONPATH unchanged). SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed to the training
command. Run exits with the training command's exit code; where Slurm runs several tasks, with
srun's, which is the highest of all: when one task fails, the others are ended and exit with 143.

With --trainings N, N trainings share the cache, each started by the same command, with
RANKPOOL_TRAINING = 0 … N-1; on several nodes each is a job step with the tasks that the batch
script asks for. The lines that they print begin with that number in brackets. When one fails the
others continue, and run exits with the code of the first that failed.

With --requeue, Slurm restarts the job after the training command has ended, if the job received the
signal of "sbatch --signal" or was preempted; see docs/slurm.md.`

func newRunCommand() *cobra.Command {
	var o launch.Options
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND…",
		Short: "Run a training command with a cache",
		Long:  aboutRun + "\n\n" + exit.Table,
		Example: "  rankpool run --data /lustre/imagenet --memory 64GiB -- torchrun " +
			"--nproc-per-node 4 train.py\n" +
			"  rankpool run --ranks 4 --data images/ -- python train.py\n" +
			"  rankpool run --trainings 4 --data images/ -- " +
			"sh -c 'python train.py --seed $RANKPOOL_TRAINING'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = args
			given := cmd.Flags().Changed("ranks") || cmd.Flags().Changed("trainers-per-rank") ||
				cmd.Flags().Changed("trainings")
			return o.Run(cmd.Context(), given)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	o.Register(flags)
	return cmd
}
