#!/bin/bash
# One task a node: torchrun starts a training process for each GPU.
#SBATCH --nodes=4 --ntasks-per-node=1 --gpus-per-node=4
# CPU cores of a task, for its training and its DataLoader workers.
#SBATCH --cpus-per-task=32
# All memory of each node, for training and the cache.
#SBATCH --mem=0
#SBATCH --time=600

set -euo pipefail

# exec replaces the shell by rankpool, which gets the signals that Slurm sends.
exec rankpool run --data /lustre/imagenet --memory auto --log run-$SLURM_JOB_ID.jsonl \
    -- torchrun --nproc-per-node 4 train.py --lr 0.1
