#!/bin/bash
# What scripts/test-wheel.sh runs in its root: installs the wheel by pip, and trains two epochs on
# 64 files.
set -euo pipefail
cd /test
for program in cc gcc go mpirun srun; do
	! command -v $program ||
		{ echo "wheel.sh: $program is here, so the test proves nothing" >&2; exit 1; }
done
[ -z "$(find / -xdev -name 'libmpi*' -print -quit)" ] ||
	{ echo "wheel.sh: an MPI library is here" >&2; exit 1; }

python3 -m venv venv
venv/bin/pip install -q --no-index ./rankpool-*.whl
for class in a b; do
	mkdir -p data/$class
	for i in $(seq 32); do head -c 20000 /dev/urandom >data/$class/$i.bin; done
done
venv/bin/rankpool version
venv/bin/rankpool-lab version
# train FLAG… prints the digest of the stream.
train() {
	venv/bin/rankpool run --data data --tune progress=0 "$@" -- \
		venv/bin/python e2e/trainer.py --epochs 2 --sampler torch --digest | grep '^digest '
}
digest=$(train)
[ "$digest" = "$(train --memory 0)" ] ||
	{ echo "wheel.sh: another stream without memory" >&2; exit 1; }
echo "wheel.sh: trained two epochs, $digest"
