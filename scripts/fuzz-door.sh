#!/bin/sh
# Fuzzes the doors of two ranks for some time: as hostile clients beside a training whose stream is
# compared, and as the trainers themselves. Any input that ends a rank or changes the stream is
# written to mpicache/testdata/fuzz, and is a test from then on. Usage: scripts/fuzz-door.sh TIME,
# such as 10m, or 800x for as many inputs. At the end of a time, Go 1.26 sometimes fails without an
# input, with "context deadline exceeded" (golang/go#75804): CI counts inputs.
set -eu
cd "$(dirname "$0")/.."
fuzz() {
	go test ./mpicache -run '^$' -fuzz "^$1\$" -fuzztime "$2" -fuzzminimizetime 1x \
		-parallel "$(((3 + $(nproc)) / 4))"
}
fuzz FuzzDoor "$1" &
door=$!
status=0
fuzz FuzzTrainers "$1" || status=$?
wait $door || status=$?
exit $status
