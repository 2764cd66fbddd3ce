#!/bin/bash
# One training process a node.
#SBATCH --nodes=1 --ntasks-per-node=1
# CPU cores of a task, for its training and its DataLoader workers.
#SBATCH --cpus-per-task=4
# Memory of each node, for training and the cache.
#SBATCH --mem=16G
#SBATCH --time=30
#SBATCH --array=0-9%2

set -euo pipefail

# exec replaces the shell by rankpool, which gets the signals that Slurm sends.
exec rankpool run --data images --memory 20% --log run-$SLURM_JOB_ID.jsonl \
    -- sh -c 'exec python train.py --seed "$SLURM_ARRAY_TASK_ID"'
