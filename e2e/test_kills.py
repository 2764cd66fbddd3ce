"""Ranks are killed anywhere, again and again; RANKPOOL_KILLS is in how many trainings.

But not while they start: a rank that dies within MPI_Init leaves files of MPICH's in /dev/shm,
which nobody knows.
"""

import os
import random

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES
from test_faults import ALONE, kill_ranks

WAYS = [
    dict(), dict(ranks=2), dict(ranks=2, mpi="mpich"), dict(ranks=4), dict(ranks=4, mpi="mpich"),
]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(int(os.environ.get("RANKPOOL_KILLS", 20))))
def test_killed_anywhere(start, reference, seed):
    rng = random.Random(seed)
    way, sampler = rng.choice(WAYS), rng.choice(["pads", "torch", "uniform"])
    places = sorted(rng.sample(range(1, EPOCHS * BATCHES - ALONE, ALONE + 1), rng.randint(1, 3)))
    backs = [rng.choice([True, False]) for _ in places]
    pause = [
        p
        for place, back in zip(places, backs)
        for p in ([place] if back else [place, place + ALONE])
    ]
    one = start(**way, args=["--epochs", EPOCHS, "--sampler", sampler], pause=pause)
    for place, back in zip(places, backs):
        kill_ranks(one, place, rng.randint(1, way.get("ranks", 1)), back)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference(sampler).batches
