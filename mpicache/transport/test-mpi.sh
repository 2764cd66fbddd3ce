#!/bin/sh
# Runs the transport contract under mpirun with each MPI that is asked for (default: Open MPI and
# MPICH) and 1, 2 and 4 ranks, and messages under signals; it also checks that MPI_Finalize returns.
# One test program runs under all. Usage:
# mpicache/transport/test-mpi.sh [openmpi] [mpich]. It fails when a launcher or a library is
# missing.
set -eu
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- openmpi mpich
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers of CI run as root
CGO_ENABLED=0 go test -c -o "$dir/contract" ./mpicache/transport
CGO_ENABLED=0 go test -c -o "$dir/signals" ./mpicache/transport/mpi
sha256sum "$dir/contract" "$dir/signals"
for mpi; do
	command -v "mpirun.$mpi" >/dev/null || { echo "test-mpi.sh: mpirun.$mpi is missing" >&2; exit 1; }
	case $mpi in
	openmpi) launch="mpirun.openmpi --oversubscribe --bind-to none" library=libmpi.so.40 ;;
	*) launch="mpirun.$mpi" library=libmpich.so.12 ;;
	esac
	for ranks in 1 2 4; do
		echo "== $mpi, $ranks ranks"
		RANKPOOL_TEST_MPI=$mpi RANKPOOL_TEST_RANKS=$ranks $launch -n "$ranks" "$dir/contract" \
			-test.run '^TestMPI' -test.timeout 120s
	done
	if [ "$mpi" = mpich ]; then # over TCP, as between nodes: its MPI_Finalize can hang
		for round in 1 2 3 4 5 6; do
			echo "== $mpi over TCP, round $round"
			UCX_TLS=self,tcp RANKPOOL_TEST_MPI=$mpi RANKPOOL_TEST_RANKS=4 $launch -n 4 "$dir/contract" \
				-test.run '^TestMPI' -test.timeout 120s
		done
	fi
	echo "== $mpi, signals"
	RANKPOOL_TEST_LIBRARY=$library $launch -n 2 "$dir/signals" -test.v \
		-test.run '^TestMPIUnderSignals' -test.timeout 120s
done
