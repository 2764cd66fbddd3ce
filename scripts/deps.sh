#!/bin/sh
# deps.sh TARGET…: installs the Debian packages that the targets need and that are missing.
#   build   nothing but Go, which it only looks for
#   run     what "make run" needs: torchvision, Pillow, Fashion-MNIST, FUSE
#   test    what "make test" needs: the above, both MPIs, C compiler, Slurm, pytest,
#           Redis, browser
#   bench   what "make bench" needs: Python and Redis
#   bench-staging  what "make bench-staging" needs: PyTorch, rsync and FUSE
#   debian13  what "make test-debian13" needs: debootstrap
# If it may not install packages, it prints their names and fails.
set -eu
here=$(dirname "$0")
python=${PYTHON:-/usr/bin/python3}
missing=

# need PACKAGES COMMAND… counts the packages as missing if the command fails.
need() {
	packages=$1
	shift
	"$@" >/dev/null 2>&1 || missing="$missing $packages"
}
program() { command -v "$1"; }
daemon() { PATH=$PATH:/usr/sbin:/sbin command -v "$1"; }
module() { "$python" -c "import $1"; }

for_build() { :; }

for_run() {
	for_fuse
	need python3 program "$python"
	need python3-torch module torch
	need python3-torchvision module torchvision
	need python3-numpy module numpy
	need python3-pil module PIL
	need dataset-fashion-mnist test -e /usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz
}

for_bench() {
	need openmpi-bin program mpirun
	need python3 program "$python"
	need redis-server program redis-server
	need python3-redis module redis
	need python3-hiredis module hiredis
}

for_fuse() {
	# Users other than root mount with a setuid program.
	[ "$(id -u)" = 0 ] || need fuse3 program fusermount3
}

for_bench_staging() {
	need openmpi-bin program mpirun
	for_fuse
	need python3 program "$python"
	need python3-torch module torch
	need python3-numpy module numpy
	need rsync program rsync
}

for_test() {
	for_run
	for_bench
	need python3-pytest module pytest
	need python3-h5py module h5py
	need python3-zarr module zarr
	need python3-pytest-xdist module xdist
	need chromium-headless-shell program chromium-headless-shell
	need fonts-dejavu-core test -e /usr/share/fonts/truetype/dejavu/DejaVuSans.ttf
	# the race detector needs a C compiler, and so do the libraries that tests build
	need "gcc libc6-dev" program gcc
	need openmpi-bin program mpirun.openmpi
	need mpich program mpirun.mpich
	need slurmctld daemon slurmctld
	need "slurmd slurm-wlm-basic-plugins" daemon slurmd
	need slurm-client program sbatch
	need munge daemon munged
	need libpmix-dev ls /usr/lib/*/libpmix.so # srun --mpi=pmix opens it
	need iproute2 daemon ip
}

for_debian13() { need debootstrap daemon debootstrap; }

"$here/go-version.sh"
for target; do
	case $target in
	build | run | test | bench | debian13) "for_$target" ;;
	bench-staging) for_bench_staging ;;
	*) echo "usage: deps.sh [build] [run] [test] [bench] [bench-staging] [debian13]" >&2; exit 2 ;;
	esac
done
missing=$(printf '%s\n' $missing | sort -u | xargs)
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" != 0 ]; then
	as_root="sudo -n"
fi
if ! command -v apt-get >/dev/null || { [ -n "$as_root" ] && ! $as_root true 2>/dev/null; }; then
	echo "these Debian packages (or what your system calls them) are missing," \
		"and this user may not install them: $missing" >&2
	echo "install them: apt-get install $missing" >&2
	exit 1
fi
echo "installing: $missing"
install() {
	$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
		-o DPkg::Lock::Timeout=300 $missing
}
# Package lists are fetched only if the installation fails: they may be missing or out of date.
install || { $as_root apt-get update -q && install; }
