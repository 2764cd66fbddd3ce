#!/bin/bash
# A training process for each GPU.
#SBATCH --nodes=1 --ntasks-per-node=1 --gpus-per-node=1
# Memory of each node, for training and the cache.
#SBATCH --mem=32G
#SBATCH --time=30
#SBATCH --array=1,3
# The job may restart, and its output then continues in the same file.
#SBATCH --requeue --open-mode=append
# 90 s before the end, or up to a minute earlier, the batch shell (B:) gets SIGUSR1.
#SBATCH --signal=B:USR1@90

set -euo pipefail

# exec replaces the shell by rankpool, which gets the signal: training writes its checkpoint, and
# the job is requeued. The training script must call rankpool.Stop() after each step, and end when
# it returns True: see docs/slurm.md.
exec rankpool run --data images --memory auto --log run-$SLURM_JOB_ID.jsonl \
    --requeue --state scores-$SLURM_JOB_ID.state \
    -- python -u train.py
