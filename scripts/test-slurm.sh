#!/bin/sh
# Builds rankpool with Open MPI, with MPICH and without MPI, brings up a Slurm of four nodes on this machine, runs the trainings of
# e2e/slurm/ on it, and takes it down again.
# Usage: scripts/test-slurm.sh [PYTEST ARGUMENT…]. It fails when a component is missing.
set -eu
cd "$(dirname "$0")/.."
tools="munged slurmctld slurmd srun sbatch"
. scripts/mpi-builds.sh
"$python" -m pytest -v -p no:cacheprovider --basetemp "$RANKPOOL_BINARIES/tmp" --durations 10 e2e/slurm "$@"
