#!/bin/sh
# Starts a Slurm cluster of four nodes on this machine, runs the trainings of e2e/slurm/ on it with
# both MPIs, and stops it. Usage: scripts/test-slurm.sh [PYTEST ARGUMENT…]. It fails if a component
# is missing. WORKERS=N: tests at once.
set -eu
cd "$(dirname "$0")/.."
tools="munged slurmctld slurmd srun sbatch"
. scripts/test-tools.sh
"$python" -m pytest -v -p no:cacheprovider --basetemp "$dir/tmp" --durations 10 -n "${WORKERS:-3}" \
	--dist loadgroup e2e/slurm "$@"
