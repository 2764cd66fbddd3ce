#!/bin/bash
# Measures "rankpool stage --mode replicate" over shaped links: each rank in its own network
# namespace, behind a bridge, its link shaped in both directions by tc's token bucket. It prints the
# time over size / bandwidth (must be ≤ 1.25), and the bytes read from storage over the data set's
# size (must be 1), and fails if one is missed or a copy differs. It needs root, iproute2, and Open
# MPI. Usage: benchmarks/stage.sh [RANKPOOL]
#   RANKS=4 RATE_MBIT=1000 FILES=2000 FILE_KB=110 BIG=2 BIG_MB=40 DIR=/dev/shm
set -eu
if [ "${STAGE_BENCH_AGENT:-}" = yes ]; then # called by mpirun as its remote shell: HOST COMMAND…
	host=$1
	shift
	# where Open MPI's daemons, all of one host name, keep their files
	mkdir -p "$STAGE_BENCH_TMP/$host"
	exec nsenter --net="/run/netns/$host" -- env TMPDIR="$STAGE_BENCH_TMP/$host" sh -c "$*"
fi
rankpool=$(readlink -f "${1:-bin/rankpool}")
ranks=${RANKS:-4} rate=${RATE_MBIT:-1000} files=${FILES:-2000} file_kb=${FILE_KB:-110} \
	big=${BIG:-2} big_mb=${BIG_MB:-40}
for tool in ip tc nsenter mpirun.openmpi "$rankpool"; do
	command -v "$tool" >/dev/null || { echo "stage.sh: $tool is missing" >&2; exit 1; }
done
net=10.79.0 bridge=rpstage hosts=
dir=$(mktemp -d "${DIR:-/dev/shm}/rpstage.XXXXXX")
clean() {
	for i in $(seq 1 "$ranks"); do
		ip netns del "rpstage$i" 2>/dev/null || :
	done
	ip link del $bridge 2>/dev/null || :
	rm -rf "$dir"
}
trap clean EXIT
trap 'exit 1' INT TERM

ip link add $bridge type bridge
ip addr add $net.254/24 dev $bridge
ip link set $bridge up
shape() { # a bucket of 512 kB holds what arrives while the kernel sleeps
	$1 tc qdisc replace dev "$2" root tbf rate "${rate}mbit" burst 512kb latency 20ms
}
for i in $(seq 1 "$ranks"); do
	ip netns add "rpstage$i"
	ip link add "rpstage$i" type veth peer name eth0 netns "rpstage$i"
	ip link set "rpstage$i" master $bridge up
	ip -n "rpstage$i" link set lo up
	ip -n "rpstage$i" addr add "$net.$i/24" dev eth0
	ip -n "rpstage$i" link set eth0 up
	shape "" "rpstage$i"
	shape "ip netns exec rpstage$i" eth0
	hosts=$hosts,rpstage$i
done

mkdir "$dir/source"
i=0
while [ $i -lt "$files" ]; do # random bytes: a part of one file each, so that they differ
	mkdir -p "$dir/source/$((i / 500))"
	head -c "${file_kb}k" /dev/urandom >"$dir/source/$((i / 500))/$i"
	i=$((i + 1))
done
for i in $(seq 1 "$big"); do
	head -c "${big_mb}m" /dev/urandom >"$dir/source/big$i"
done

export STAGE_BENCH_AGENT=yes STAGE_BENCH_TMP="$dir/tmp" OMPI_ALLOW_RUN_AS_ROOT=1 \
	OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
time -p mpirun.openmpi --mca plm rsh --mca plm_rsh_agent "$(readlink -f "$0")" -H "${hosts#,}" \
	--bind-to none \
	--mca oob_tcp_if_include $net.0/24 --mca btl self,tcp --mca btl_tcp_if_include $net.0/24 \
		-n "$ranks" \
	"$rankpool" stage --data "$dir/source" --dest "$dir/{rank}" --mode replicate --json \
		>"$dir/summary"
for i in $(seq 0 $((ranks - 1))); do
	diff -r -x ".rankpool-*" "$dir/source" "$dir/$i"
done
# prints a field of the job, which comes before the ranks
field() { sed -n "s/^{[^[]*\"$1\":\([0-9.e+-]*\).*/\1/p" "$dir/summary"; }
size=$(find "$dir/source" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
awk -v seconds="$(field seconds)" -v read="$(field storage_bytes)" \
	-v opened="$(field storage_reads)" -v size="$size" \
	-v ranks="$ranks" -v rate="$rate" -v files=$((files + big)) 'BEGIN {
	bound = size * 8 / (rate * 1e6)
	printf "replicate, %d ranks, %d Mbit links, %d files, %.0f MB: %.2f s\n",
		ranks, rate, files, size / 1e6, seconds
	printf "time over size / bandwidth:     %.2f (bar 1.25)\n", seconds / bound
	printf "storage reads over the size:    %.2f (bar 1), files opened %d of %d\n",
		read / size, opened, files
	exit !(seconds <= 1.25 * bound && read == size && opened == files)
}'
