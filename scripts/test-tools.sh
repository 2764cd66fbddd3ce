# Sourced by the scripts that train. It checks that the tools in $tools are installed, and creates a
# folder that is removed when the script ends. $RANKPOOL is the program that all tests run, by
# default the one from "make build".
python=${PYTHON:-/usr/bin/python3}
PATH=$PATH:/usr/sbin:/sbin
export RANKPOOL="$(readlink -f "${RANKPOOL:-bin/rankpool}")"
for tool in "$RANKPOOL" mpirun.openmpi mpirun.mpich "$python" $tools; do
	command -v "$tool" >/dev/null || { echo "${0##*/}: $tool is missing" >&2; exit 1; }
done
"$python" -c "import numpy, PIL, pytest, torch.distributed, torchvision, xdist"
sha256sum "$RANKPOOL"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
