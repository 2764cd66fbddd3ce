#!/bin/sh
# Builds rankpool with Open MPI, with MPICH and without MPI, and runs the trainings of e2e/ with them.
# Usage: scripts/test-e2e.sh [PYTEST ARGUMENT…]. It fails when a component is missing.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-/usr/bin/python3}
for tool in go mpicc.openmpi mpirun.openmpi mpicc.mpich mpirun.mpich "$python"; do
	command -v "$tool" >/dev/null || { echo "test-e2e.sh: $tool is missing" >&2; exit 1; }
done
"$python" -c "import numpy, PIL, pytest, torch.distributed"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for mpi in openmpi mpich; do
	echo "building with mpicc.$mpi"
	CGO_ENABLED=1 CC=mpicc.$mpi go build -tags mpi -o "$dir/$mpi/rankpool" ./cmd/rankpool
done
echo "building without MPI"
CGO_ENABLED=0 go build -o "$dir/nompi/rankpool" ./cmd/rankpool
RANKPOOL_BINARIES=$dir "$python" -m pytest -v -p no:cacheprovider --basetemp "$dir/tmp" --durations 10 e2e "$@"
