#!/bin/sh
# Runs the transport contract under mpirun with each MPI that is asked for (default: Open MPI and MPICH) and 1, 2 and 4 ranks.
# Usage: mpicache/test-mpi.sh [openmpi] [mpich]. It fails when a compiler wrapper or a launcher is missing.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- openmpi mpich
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers of CI run as root
for mpi; do
	for tool in "mpicc.$mpi" "mpirun.$mpi"; do
		command -v "$tool" >/dev/null || { echo "test-mpi.sh: $tool is missing" >&2; exit 1; }
	done
	case $mpi in
	openmpi) launch="mpirun.openmpi --oversubscribe --bind-to none" ;;
	*) launch="mpirun.$mpi" ;;
	esac
	CC=mpicc.$mpi go test -c -tags mpi -o "$dir/$mpi.test" ./mpicache
	for ranks in 1 2 4; do
		echo "== $mpi, $ranks ranks"
		$launch -n "$ranks" "$dir/$mpi.test" -test.run '^TestMPI' -test.timeout 120s
	done
done
