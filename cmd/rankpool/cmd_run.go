package main

import (
	"github.com/spf13/cobra"

	"rankpool/cmd/rankpool/internal/exit"
	"rankpool/cmd/rankpool/internal/launch"
)

const aboutRun = `Run starts the cache, one rank a node, then the training command, and watches both. When a rank dies the
cache is started again under the running training, which reads storage meanwhile: same samples, same order.

Outside Slurm all ranks and trainers run on this machine. In a batch script of Slurm, call it without srun:
it starts two overlapping job steps, the cache and the training command. As a task of srun or mpirun, one a
node, it starts that node's rank and trainers.

The training command finds RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and
the Python package rankpool on PYTHONPATH (RANKPOOL_PYTHON=no keeps PYTHONPATH as it is). SIGINT, SIGTERM,
SIGHUP, SIGUSR1 and SIGUSR2 go to the training command. Its exit code is run's own; of several tasks of Slurm it is
srun's, the highest of all: when one fails the others are ended, and have 143.

With --requeue a job that is at its end, as the signal of "sbatch --signal" or a preemption says, is started again
by Slurm when the training command has ended; see docs/requeue.md.`

func newRunCommand() *cobra.Command {
	var o launch.Options
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND…",
		Short: "Run a training command with the cache beside it",
		Long:  aboutRun + "\n\n" + exit.Table,
		Example: "  rankpool run --data /lustre/imagenet --memory 64GiB -- torchrun --nproc-per-node 4 train.py\n" +
			"  rankpool run --ranks 4 --data images/ -- python train.py",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = args
			given := cmd.Flags().Changed("ranks") || cmd.Flags().Changed("trainers-per-rank")
			return o.Run(cmd.Context(), given)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	o.Register(flags)
	return cmd
}
