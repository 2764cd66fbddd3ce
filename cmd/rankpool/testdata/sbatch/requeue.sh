#!/bin/bash
#SBATCH --job-name="my training"
#SBATCH --account=ab0123
#SBATCH --partition=gpu
# A training process for each GPU.
#SBATCH --nodes=2 --ntasks-per-node=4 --gpus-per-node=4
# CPU cores of a task, for its training and its DataLoader workers.
#SBATCH --cpus-per-task=16
# Memory of each node, for training and the cache.
#SBATCH --mem=480G
#SBATCH --time=1-00:00:00
# The job may restart, and its output then continues in the same file.
#SBATCH --requeue --open-mode=append
# 120 s before the end, or up to a minute earlier, the batch shell (B:) gets SIGUSR1.
#SBATCH --signal=B:USR1@120

set -euo pipefail

module load openmpi/4.1.4 rankpool

# exec replaces the shell by rankpool, which gets the signal: training writes its checkpoint, and
# the job is requeued. The training script must call rankpool.Stop() after each step, and end when
# it returns True: see docs/slurm.md.
exec rankpool run --data train=/lustre/train --data val=/lustre/val.parquet --memory 200GiB --log run-$SLURM_JOB_ID.jsonl \
    --requeue --state scores-$SLURM_JOB_ID.state \
    -- python train.py --name 'it'\''s a "test" of $HOME' --empty ''
