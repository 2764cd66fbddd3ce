#!/bin/bash
# A training process for each GPU.
#SBATCH --nodes=4 --ntasks-per-node=4 --gpus-per-node=4
# CPU cores of a task, for its training and its DataLoader workers.
#SBATCH --cpus-per-task=8
# All memory of each node, for training and the cache.
#SBATCH --mem=0
#SBATCH --time=04:00:00

set -euo pipefail

module load openmpi rankpool

# exec replaces the shell by rankpool, which gets the signals that Slurm sends.
exec rankpool run --data /lustre/datasets/imagenet --memory auto --log run-$SLURM_JOB_ID.jsonl \
    -- python train.py
