#!/bin/bash
# Runs "make run" and "make test", or another command, on Debian 13:
# scripts/test-debian13.sh [COMMAND]. It needs root, and a Debian mirror that apt knows. The root
# file system of Debian 13 with its packages stays in the cache folder (3 GB in
# $XDG_CACHE_HOME/rankpool/debian13), so that they are fetched once per machine. Everything else is
# gone at the end, even if the run fails or is killed: it has its own namespaces for mounts,
# processes, network and IPC.
set -eu
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/rankpool/debian13
root=$cache/root
[ "$(id -u)" = 0 ] ||
	{ echo "test-debian13.sh: only root may change its root: call it with sudo" >&2; exit 1; }
mkdir -p "$cache"
exec 9>"$cache/lock"
flock --nonblock 9 ||
	{ echo "test-debian13.sh: another run uses $cache: waiting for its end" >&2; flock 9; }

# mirror prints the mirror from which this machine gets Debian.
mirror() {
	# shellcheck disable=SC2016 # the $(…) are apt's
	apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Identifier: Packages' |
		sed -n 's/^Debian //p' | head -n 1
}

# enter NAMESPACES COMMAND runs a command in the copy of the clone, inside the root file system. The
# machine's Go and its caches are there too.
enter() {
	unshare --mount --pid --ipc --uts --fork --kill-child $1 bash -c '
		set -eu
		root=$1 clone=$2 tmp=$3 command=$4
		mount --bind "$root" "$root" # tests change the propagation of /, which must be a mount
		mount --rbind /dev "$root/dev"
		mount -t tmpfs tmpfs "$root/dev/shm"
		mount -t tmpfs tmpfs "$root/run"
		mount -t proc proc "$root/proc"
		mount -t sysfs sysfs "$root/sys"
		mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
		mount --bind "$tmp" "$root/tmp"
		for folder in "$clone" "$(go env GOROOT)" "$(go env GOMODCACHE)" "$(go env GOCACHE)"; do
			mkdir -p "$folder" "$root$folder"
			mount --bind "$folder" "$root$folder"
		done
		PATH=$PATH:/usr/sbin:/sbin
		# UCX uses devices that /sys shows; on nodes they are called eth0
		[ -z "$5" ] || { ip link set lo up && ip link add eth0 type veth peer name eth1; }
		env -i TERM=dumb HOME=/root LANG=C.UTF-8 \
			PATH="$(go env GOROOT)/bin:/usr/sbin:/usr/bin:/sbin:/bin" \
			http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" \
			GOMODCACHE="$(go env GOMODCACHE)" GOCACHE="$(go env GOCACHE)" GOPROXY=off \
			chroot "$root" bash -c "cd \"\$1\" && $command" - "$clone"
	' - "$root" "$cache/work/clone" "$cache/work/tmp" "$2" "$1"
}

rm -rf "$cache/work"
trap 'rm -rf "$cache/work"' EXIT
mkdir -p "$cache/work/clone"
mkdir -m 1777 "$cache/work/tmp"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
	[ ! -e "$file" ] || printf '%s\0' "$file"
done | tar -c --null -T - | tar -x -C "$cache/work/clone"

begin=$SECONDS
if [ ! -e "$root" ]; then
	from=$(mirror)
	[ -n "$from" ] || { echo "test-debian13.sh: apt knows no mirror of Debian here" >&2; exit 1; }
	rm -rf "$root.new"
	debootstrap --variant=minbase --include=ca-certificates,iproute2,make trixie "$root.new" "$from" \
		>"$cache/debootstrap.log" ||
		{ tail -n 5 "$cache/debootstrap.log" >&2; exit 1; }
	apt-config dump | grep -i '^Acquire::[^"]*Proxy' >"$root.new/etc/apt/apt.conf.d/00proxy" || :
	mv "$root.new" "$root"
fi
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$(hostname)" >"$root/etc/hosts"
go mod download
enter "" "scripts/deps.sh run test"
release=$(cat "$root/etc/debian_version")
echo "test-debian13.sh: Debian $release is set up after $((SECONDS - begin)) s"
begin=$SECONDS
enter --net "${1:-make run && make test}"
echo "test-debian13.sh: done after another $((SECONDS - begin)) s"
