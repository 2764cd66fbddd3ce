#!/bin/bash
# Installs the wheel from "make wheel" with pip on a Debian 13 that has neither a compiler nor MPI,
# and trains there. It needs root, and a Debian mirror that apt knows. The root file system of
# Debian 13 stays in build/bare (300 MB).
set -eu
cd "$(dirname "$0")/.."
root=$PWD/build/bare
wheel=$(echo "$PWD"/build/rankpool-*-linux_"$(uname -m)".whl)
[ "$(id -u)" = 0 ] ||
	{ echo "test-wheel.sh: only root may change its root: call it with sudo" >&2; exit 1; }
[ -e "$wheel" ] || { echo "test-wheel.sh: there is no wheel in build: say make wheel" >&2; exit 1; }

if [ ! -e "$root" ]; then
	# shellcheck disable=SC2016 # the $(…) are apt's
	from=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Identifier: Packages' |
		sed -n 's/^Debian //p' | head -n 1)
	[ -n "$from" ] || { echo "test-wheel.sh: apt knows no mirror of Debian here" >&2; exit 1; }
	rm -rf "$root.new"
	debootstrap --variant=minbase --include=python3,python3-venv trixie "$root.new" "$from" \
		>build/bare.log ||
		{ tail -n 5 build/bare.log >&2; exit 1; }
	mv "$root.new" "$root"
fi

rm -rf "$root/test"
mkdir -p "$root/test/python"
cp "$wheel" "$root/test"
cp -r e2e python/examples "$root/test"
mv "$root/test/examples" "$root/test/python/examples"
unshare --mount --pid --net --fork --kill-child bash -c '
	set -eu
	mount --rbind /dev "$1/dev"
	mount -t tmpfs tmpfs "$1/dev/shm"
	mount -t proc proc "$1/proc"
	env -i HOME=/root LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin \
		chroot "$1" bash /test/e2e/wheel.sh
' - "$root"
