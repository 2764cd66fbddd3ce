"""What the nodes had in memory is served again without storage when a rank has died.

The trainer is train.py, or trainer.py, which uses samples in place: then a rank takes the memory
back when the script has gone on to its next batch.
"""

import re

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES

KILLS = [BATCHES + 3, BATCHES + 9, 2 * BATCHES + 2]  # of one rank each, in mid-epoch
KEPT = re.compile(r'samples="kept (\d+) of (\d+)"')
# batches that are trained without the cache: more than a script has asked for, which may be in its
# hands
ALONE = 4


def kill_one(run, batch, ranks, alone):
    """Kills a rank while training stands still after a batch. It goes on when the cache is back, or
    for so many batches before: a script that stands still uses its batch in place."""
    run.wait_for_batches(batch)
    old = run.ranks()
    run.kill(old[:1])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    if alone:
        run.go(batch)
        batch += alone
        run.wait_for_batches(batch)
    run.wait_for(lambda: run.ranks() and run.ready(ranks), "the cache was back")
    run.go(batch)


@pytest.mark.parametrize(
    "mpi, torch, alone",
    [
        pytest.param("openmpi", True, 0, id="openmpi"),
        pytest.param("mpich", True, 0, id="mpich", marks=pytest.mark.full),
        pytest.param("openmpi", False, ALONE, id="in place"),
    ],
)
def test_what_was_in_memory_is_kept(start, mpi, torch, alone):
    args = ["--epochs", EPOCHS, "--sampler", "torch", *([] if torch else ["--ahead", 1])]
    way = dict(ranks=4, mpi=mpi, memory="40%", args=args, torch=torch)
    calm = start(**way).finish().check(EPOCHS, SAMPLES)
    one = start(**way, pause=sorted({batch + more for batch in KILLS for more in (0, alone)}))
    for batch in KILLS:
        kill_one(one, batch, 4, alone)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.digest == calm.digest
    kept = [tuple(map(int, found)) for found in KEPT.findall(result.stderr)]
    assert len(kept) == 4 * len(KILLS), result.stderr
    assert all(n >= 0.99 * of and of >= 20 for n, of in kept), kept
    assert result.summary["storage_reads"] <= 1.03 * calm.summary["storage_reads"]
