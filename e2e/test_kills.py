"""Ranks are killed anywhere, repeatedly, in RANKPOOL_KILLS trainings.

They are not killed while they start: an MPICH rank that dies in MPI_Init leaves files in /dev/shm,
which nobody removes.
"""

import os
import random
import re

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES
from test_faults import ALONE, kill_ranks
from test_jobs import JOBS, alone, both, go, lines, wait_for_pause  # noqa: F401 (a fixture)

KILLS = range(int(os.environ.get("RANKPOOL_KILLS", 20)))
WAYS = [
    dict(), dict(ranks=2), dict(ranks=2, mpi="mpich"), dict(ranks=4), dict(ranks=4, mpi="mpich"),
]
# How a script uses samples: it holds them until it takes the next batch, which it requested long
# before, or not; or its loader copies them.
HANDS = [dict(), dict(args=["--ahead", 1]), dict(torch=True)]
TAKEN_OVER = re.compile(r'samples: kept (\d+) of (\d+)')
EMPTY = re.compile("is not taken over|the cache starts empty")


def kill_and_go_on(run, batch, count):
    """Kills ranks where training pauses; it continues when they are dead, and what is in memory is
    taken over when its scripts release it."""
    old = run.ranks()
    run.kill(old[:count])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    run.go(batch)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", KILLS)
def test_killed_anywhere(start, reference, tmp_path, seed):
    rng = random.Random(seed)
    way, sampler = rng.choice(WAYS), rng.choice(["pads", "torch", "uniform"])
    hands = dict(rng.choice(HANDS))
    ranks = way.get("ranks", 1)
    places = sorted(rng.sample(range(1, EPOCHS * BATCHES - ALONE, ALONE + 1), rng.randint(1, 3)))
    hows = [rng.choice(["waits", "alone", "continues", "continues"]) for _ in places]
    pause = [
        p
        for place, how in zip(places, hows)
        for p in ([place, place + ALONE] if how == "alone" else [place])
    ]
    options = ["--tier", f"{tmp_path}:30%"] if rng.random() < 0.3 else []
    args = ["--epochs", EPOCHS, "--sampler", sampler, *hands.pop("args", [])]
    memory = rng.choice(["10%", "20%", "40%", "100%"])
    one = start(**way, **hands, args=args, pause=pause, options=options, memory=memory)
    for place, how in zip(places, hows):
        count = rng.randint(1, ranks)
        one.wait_for_batches(place)
        one.wait_for(lambda: len(one.ranks()) == ranks and one.ready(ranks), "the cache was there")
        if how == "continues":
            kill_and_go_on(one, place, count)
        else:
            kill_ranks(one, place, count, how == "waits")
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference(sampler).batches, result.stderr
    taken = TAKEN_OVER.findall(result.stderr)
    print(f"{len(hows)} times ranks were killed ({way}, {sampler}, {options}); kept: {taken}")
    if len(places) > 1 and hows[0] == "continues":  # training waited for the cache
        assert taken or EMPTY.search(result.stderr), result.stderr
        assert taken or not hands.get("torch"), "a loader that copies has nothing in its hands"


@pytest.mark.nightly
@pytest.mark.parametrize("seed", KILLS)
def test_killed_anywhere_under_two_trainings(start, alone, seed):  # noqa: F811
    """Both have their own sampler and batch size, and keep their samples in one memory."""
    rng = random.Random(seed)
    way = rng.choice(WAYS[:3])
    ranks = way.get("ranks", 1)
    one = start(**way, memory=rng.choice(["20%", "40%", "100%"]), command=both(ranks))
    wait_for_pause(one, "b")
    old = one.ranks()
    one.kill(old[: rng.randint(1, ranks)])
    one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were dead")
    go(one, "a", "b")
    more = rng.randint(BATCHES + 1, 2 * BATCHES)
    one.wait_for(lambda: len(lines(one, "b")) >= more, f"{more} batches were trained")
    if len(one.ranks()) == ranks and one.ready(ranks):
        one.kill(one.ranks()[-1:])
    result = one.finish()
    assert result.code == 0, result.stderr
    for job in JOBS:
        assert lines(one, job) == alone(job), f"job {job}\n{result.stderr}"
