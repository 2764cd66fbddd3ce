#!/bin/sh
# Stages a tree with each of the given MPIs (default: Open MPI and MPICH), with 1, 2 and 4 ranks, in
# both modes: twice by replication, once by partition. It compares the copies with the tree, and
# kills a replication in the middle. Usage: scripts/test-stage.sh [openmpi] [mpich]. It fails if a
# launcher is missing.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- openmpi mpich
rankpool=$(readlink -f "${RANKPOOL:-bin/rankpool}")
sha256sum "$rankpool"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers of CI run as root

fail() { echo "test-stage.sh: $*" >&2; exit 1; }
mkdir -p "$dir/source/sub/empty"
i=0
while [ $i -lt 120 ]; do
	head -c $((i * 1700)) /dev/urandom >"$dir/source/sub/$i"
	i=$((i + 1))
done
head -c 30000000 /dev/urandom >"$dir/source/large"
truncate -s 10000000 "$dir/source/sparse"
ln "$dir/source/sub/7" "$dir/source/hard"
ln -s sub/8 "$dir/source/soft"
printf x >"$dir/source/$(printf 'two\nlines \377')"

# tree FOLDER prints the checksum of a tree: names, contents, links, modes and times, without the
# lock and the journals.
tree() {
	(cd "$1" && {
		find . -type f ! -name '.rankpool-*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum --zero
		find . ! -path . ! -name '.rankpool-*' -printf '%y %m %T@ %l %P\0' | LC_ALL=C sort -z
	} | sha256sum)
}
says() { # SUMMARY FIELD VALUE
	got=$(sed -n "s/^{[^[]*\"$2\":\([0-9]*\).*/\1/p" "$1")
	[ "$got" = "$3" ] || fail "$2 is $got, want $3: $(cat "$1")"
}
want=$(tree "$dir/source")
for mpi; do
	command -v "mpirun.$mpi" >/dev/null || fail "mpirun.$mpi is missing"
	case $mpi in
	openmpi) launch="mpirun.openmpi --oversubscribe --bind-to none" ;;
	*) launch="mpirun.$mpi" ;;
	esac
	stage="$rankpool stage --data $dir/source --json"
	for ranks in 1 2 4; do
		echo "== $mpi, $ranks ranks"
		rm -rf "$dir/copies"
		for run in first second; do
			$launch -n "$ranks" $stage --dest "$dir/copies/{rank}" --mode replicate >"$dir/summary"
			copied=$((125 * ranks)) opened=124
			[ $run = first ] || copied=0 opened=0
			says "$dir/summary" copied $copied
			says "$dir/summary" storage_reads $opened
			says "$dir/summary" failed 0
			for rank in $(seq 0 $((ranks - 1))); do
				[ "$(tree "$dir/copies/$rank")" = "$want" ] || fail "rank $rank has another tree"
			done
		done
		rm -rf "$dir/copies"
		$launch -n "$ranks" $stage --dest "$dir/copies" --mode partition >"$dir/summary"
		says "$dir/summary" copied 125
		[ "$(tree "$dir/copies")" = "$want" ] || fail "the shares are another tree"
	done
	echo "== $mpi, the ranks are killed in the middle"
	rm -rf "$dir/copies"
	status=0
	$launch -n 2 sh -c "$stage --dest '$dir/copies/{rank}' --mode replicate & pid=\$!
		while [ ! -e $dir/copies/1/sub ] && kill -0 \$pid; do :; done
		kill -9 \$pid 2>/dev/null
		wait \$pid" >/dev/null 2>&1 || status=$?
	[ $status != 0 ] || echo "the ranks were faster than the kill"
	$launch -n 2 $stage --dest "$dir/copies/{rank}" --mode replicate >"$dir/summary"
	says "$dir/summary" failed 0
	for rank in 0 1; do
		[ "$(tree "$dir/copies/$rank")" = "$want" ] || fail "rank $rank has another tree after the kill"
	done
done
