# Sourced by the scripts that train. It checks that the tools named in $tools are there, and makes a
# folder that goes with the script. $RANKPOOL is the program that all tests run, by default that of
# "make build".
python=${PYTHON:-/usr/bin/python3}
PATH=$PATH:/usr/sbin:/sbin
export RANKPOOL="$(readlink -f "${RANKPOOL:-bin/rankpool}")"
for tool in "$RANKPOOL" mpirun.openmpi mpirun.mpich "$python" $tools; do
	command -v "$tool" >/dev/null || { echo "${0##*/}: $tool is missing" >&2; exit 1; }
done
"$python" -c "import numpy, PIL, pytest, torch.distributed, xdist"
sha256sum "$RANKPOOL"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
