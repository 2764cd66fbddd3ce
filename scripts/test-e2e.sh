#!/bin/sh
# Builds rankpool with Open MPI, with MPICH and without MPI, and runs the trainings of e2e/ with them, but for those under Slurm.
# Usage: scripts/test-e2e.sh [PYTEST ARGUMENT…]. It fails when a component is missing.
set -eu
cd "$(dirname "$0")/.."
tools=
. scripts/mpi-builds.sh
"$python" -m pytest -v -p no:cacheprovider --basetemp "$RANKPOOL_BINARIES/tmp" --durations 10 --ignore e2e/slurm e2e "$@"
