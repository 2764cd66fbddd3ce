# Sourced by the scripts that test with each MPI. It checks that the tools named in $tools are there, and builds rankpool with Open MPI,
# with MPICH and without MPI into a folder that goes with the script: $RANKPOOL_BINARIES/openmpi/rankpool, mpich/…, nompi/….
python=${PYTHON:-/usr/bin/python3}
PATH=$PATH:/usr/sbin:/sbin
for tool in go mpicc.openmpi mpirun.openmpi mpicc.mpich mpirun.mpich "$python" $tools; do
	command -v "$tool" >/dev/null || { echo "${0##*/}: $tool is missing" >&2; exit 1; }
done
"$python" -c "import numpy, PIL, pytest, torch.distributed"
RANKPOOL_BINARIES=$(mktemp -d)
export RANKPOOL_BINARIES
trap 'rm -rf "$RANKPOOL_BINARIES"' EXIT
for mpi in openmpi mpich; do
	echo "building with mpicc.$mpi"
	CGO_ENABLED=1 CC=mpicc.$mpi go build -tags mpi -o "$RANKPOOL_BINARIES/$mpi/rankpool" ./cmd/rankpool
done
echo "building without MPI"
CGO_ENABLED=0 go build -o "$RANKPOOL_BINARIES/nompi/rankpool" ./cmd/rankpool
