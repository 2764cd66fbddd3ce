#!/bin/sh
# Runs the trainings of e2e/ with both MPIs, except those under Slurm. Usage: scripts/test-e2e.sh
# [PYTEST ARGUMENT…]. It fails if a component is missing. WORKERS=N: tests at once.
set -eu
cd "$(dirname "$0")/.."
tools=
. scripts/test-tools.sh
# A shell starts background processes with SIGINT ignored.
env --default-signal=INT "$python" -m pytest -v -p no:cacheprovider --basetemp "$dir/tmp" \
	--durations 10 -n "${WORKERS:-6}" --dist loadgroup --ignore e2e/slurm e2e "$@"
