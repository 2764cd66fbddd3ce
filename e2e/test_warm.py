"""What the nodes had in memory is served again without storage when a rank has died.

The trainer is train.py: e2e/trainer.py uses samples in place, and then no rank takes memory back.
"""

import re

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES

KILLS = [BATCHES + 3, BATCHES + 9, 2 * BATCHES + 2]  # of one rank each, in mid-epoch
KEPT = re.compile(r'samples="kept (\d+) of (\d+)"')


def kill_one(run, batch, ranks):
    """Kills a rank while training stands still after a batch, until the cache is back."""
    run.wait_for_batches(batch)
    old = run.ranks()
    run.kill(old[:1])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    run.wait_for(lambda: run.ranks() and run.ready(ranks), "the cache was back")
    run.go(batch)


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_what_was_in_memory_is_kept(start, mpi):
    args = ["--epochs", EPOCHS, "--sampler", "torch"]
    way = dict(ranks=4, mpi=mpi, memory="40%", args=args, torch=True)
    calm = start(**way).finish().check(EPOCHS, SAMPLES)
    one = start(**way, pause=KILLS)
    for batch in KILLS:
        kill_one(one, batch, 4)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.digest == calm.digest
    kept = [tuple(map(int, found)) for found in KEPT.findall(result.stderr)]
    assert len(kept) == 4 * len(KILLS), result.stderr
    assert all(n >= 0.99 * of and of >= 20 for n, of in kept), kept
    assert result.summary["storage_reads"] <= 1.03 * calm.summary["storage_reads"]
