#!/bin/bash
# Brings up a Slurm with four nodes on this machine: munged, slurmctld, and a slurmd a node. It ends
# a testbed of the same number first. As root every node has a network of its own, a host name, a
# /dev/shm and an /etc/hosts (Linux namespaces). Otherwise, or where namespaces cannot be made, the
# slurmd share the machine. It prints one line, SLURM_CONF=FILE, for the environment of sbatch and
# srun. Usage: eval "export $(e2e/slurm/testbed/up.sh)"; sinfo; e2e/slurm/testbed/down.sh
#   RANKPOOL_TESTBED=0        number: testbeds of different numbers can be up at once
#   RANKPOOL_TESTBED_NODES=4  nodes
#   RANKPOOL_TESTBED_MODE=    namespaces or shared (default: what can be had)
set -eu
here=$(dirname "$(readlink -f "$0")")
. "$here/names.sh"
for tool in munged slurmctld slurmd sinfo; do
	command -v $tool >/dev/null || { echo "up.sh: $tool is missing" >&2; exit 1; }
done
"$here/down.sh"
trap 'cat "$run/log/start" 2>/dev/null >&2 || :; "$here/down.sh"' EXIT
trap 'exit 1' INT TERM HUP
unset ${!SLURM@} # of a job, when it is called in one
export SLURM_CONF="$run/slurm.conf"
umask 022
mkdir "$run"
mkdir "$run"/{state,log,munge,spool,tmp}
: >"$run/log/start"

namespaces() {
	[ "$(id -u)" = 0 ] && ip link add "$bridge" type bridge &&
		ip addr add "$subnet.254/24" dev "$bridge" && ip link set "$bridge" up &&
		unshare --uts --ipc --mount mount -t tmpfs tmpfs /dev/shm || return 1
	for i in $(seq "$nodes"); do
		local name=$bridge-$i
		ip netns add "$name" && ip link add "$name" type veth peer name eth0 netns "$name" &&
			ip link set "$name" master "$bridge" up &&
			ip -n "$name" link set lo up && ip -n "$name" addr add "$subnet.$i/24" dev eth0 &&
			ip -n "$name" link set eth0 up || return 1
	done
}
mode=${RANKPOOL_TESTBED_MODE:-}
if [ "$mode" = namespaces ]; then
	namespaces
elif [ "$mode" != shared ]; then
	mode=namespaces
	namespaces 2>/dev/null || mode=shared
fi
echo $mode >"$run/mode"
"$here/config.sh" $mode

(
	(umask 077 && head -c 128 /dev/urandom >"$run/munge/key")
	munged --force --key-file="$run/munge/key" --socket="$run/munge/socket" \
		--pid-file="$run/munge/pid" \
		--log-file="$run/munge/log" --seed-file="$run/munge/seed" # forced: it dislikes a folder in /tmp
	slurmctld -i
	for i in $(seq "$nodes"); do
		mkdir "$run/spool/node$i" "$run/tmp/node$i"
		if [ $mode = shared ]; then
			slurmd -N "node$i"
		else # not by ip netns exec, which mounts another /sys
			nsenter --net="/run/netns/$bridge-$i" unshare --uts --ipc --mount sh -c "
				hostname node$i && mount -t tmpfs -o size=1g tmpfs /dev/shm &&
				mount --bind '$run/hosts' /etc/hosts && exec slurmd -N node$i"
		fi
	done
) >"$run/log/start" 2>&1 </dev/null # a shell of its own: its failure is told by this one
for _ in $(seq 300); do
	if [ "$(sinfo -h -p debug -t idle -o %D 2>/dev/null)" = "$nodes" ]; then
		trap - EXIT
		echo "SLURM_CONF=$SLURM_CONF"
		exit 0
	fi
	sleep 0.1
done
echo "up.sh: the nodes did not come up" >&2
tail -n 5 "$run"/log/* >&2
exit 1
