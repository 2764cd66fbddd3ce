#!/bin/bash
# Ends the testbed of number RANKPOOL_TESTBED (default 0), whatever has become of it: its processes,
# namespaces, links and folder.
set -eu
. "$(dirname "$(readlink -f "$0")")/names.sh"

# members prints the numbers of all processes of the testbed: those in its namespaces, its daemons,
# and tasks of its jobs.
members() {
	local namespace process
	if [ "$(id -u)" = 0 ] && command -v ip >/dev/null; then
		for namespace in /run/netns/"$bridge"-*; do
			[ ! -e "$namespace" ] || ip netns pids "${namespace##*/}"
		done
	fi
	for process in $(grep -lsxzF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ); do
		process=${process%/environ}
		case $(cat "$process/comm" 2>/dev/null) in
		munged | slurmctld | slurmd | slurmstepd | slurmscriptd) echo "${process#/proc/}" ;;
		*) ! grep -qsz '^SLURM_JOB_ID=' "$process/environ" || echo "${process#/proc/}" ;;
		esac
	done
}
for _ in $(seq 100); do # what is killed may just have started another one
	found=$(members 2>/dev/null | grep -vx "$$" || :)
	[ -n "$found" ] || break
	kill -9 $found 2>/dev/null || :
	sleep 0.05
done
if [ "$(id -u)" = 0 ] && command -v ip >/dev/null; then
	for namespace in /run/netns/"$bridge"-*; do
		[ ! -e "$namespace" ] || ip netns del "${namespace##*/}"
	done
	# a link into a namespace may go with that
	for link in /sys/class/net/"$bridge" /sys/class/net/"$bridge"-*; do
		[ ! -e "$link" ] || ip link del "${link##*/}" 2>/dev/null || [ ! -e "$link" ]
	done
fi
rm -rf "$run"
