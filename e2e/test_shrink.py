"""A trainer that grows until its control group is full: the cache releases memory, a restarted rank
takes no more than that, and the job lives."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest
import run
from test_memory import MIB, memory_group

pytestmark = pytest.mark.xdist_group("memory")  # they share a data set, and run one at a time
SAMPLES, SAMPLE_BYTES = 1600, 150_000  # 229 MiB
BATCHES = SAMPLES // 16  # of an epoch
LIMIT, SLAB = 512 * MIB, 256 * MIB
TAKE = 256 * MIB  # with the slab, Python and the rank some 100 MiB more than the limit


@pytest.fixture(scope="module")
def large_tree(tmp_path_factory):
    root = tmp_path_factory.mktemp("large")
    (root / "a").mkdir()
    for i in range(SAMPLES):
        (root / "a" / f"{i:05}").write_bytes(os.urandom(SAMPLE_BYTES))
    return root


def training(large_tree, take_bytes):
    """Returns the arguments of a training that allocates this much memory in its second epoch."""
    command = [sys.executable, Path(__file__).parent / "hungry.py", "--take-mib", take_bytes // MIB]
    return {
        "data": large_tree, "memory": SLAB, "options": ["--tune", "log-every=1s"],
        "command": command,
    }


@pytest.fixture
def hungry(start, large_tree):
    return lambda take_bytes: start(**training(large_tree, take_bytes))


@pytest.fixture(scope="module")
def calm(tmp_path_factory, large_tree):
    """The digest of a training that allocates nothing."""
    result = run.start(tmp_path_factory.mktemp("calm"), **training(large_tree, 0)).finish()
    assert result.code == 0, result.stderr
    return result.digest


def limited():
    return memory_group().limited(LIMIT)


def noted(one):
    """The size of the slab, as the rank records it for its successor."""
    return int((one.session() / "r0" / "memory").read_text().split()[0])


def wait_for_the_cache(one, old):
    one.wait_for(lambda: set(one.ranks()) - set(old) and one.ready(1), "the cache was back")


def test_slab_shrinks_and_the_job_lives(hungry, calm):
    with limited():
        result = hungry(TAKE).finish()
    assert result.code == 0, result.stderr
    assert result.digest == calm
    fallback = sum(event["fallback_reads"] for event in result.epochs)
    assert fallback == 0, result.events
    slab = [event["slab_bytes"] for event in result.events if event["event"] == "node"]
    assert slab[-1] < SLAB * 3 // 4 and slab == sorted(slab, reverse=True), slab
    assert "the cache releases some" in result.stderr, result.stderr
    assert result.epochs[2]["hits_local"] > 0


def test_a_killed_rank_comes_back_smaller(hungry, calm):
    with limited():
        one = hungry(TAKE)
        one.wait_for_batches(2 * BATCHES + 5)
        old, before = one.ranks(), noted(one)
        one.kill(old)
        one.wait_for(lambda: "the cache went away" in one.text("stderr"), "training noticed")
        one.wait_for_batches(len(one.batches()) + 2)  # it has released the old memory
        trainers = one.trainers()
        one.kill(trainers, signal.SIGSTOP)
        wait_for_the_cache(one, old)
        after = noted(one)
        one.kill(trainers, signal.SIGCONT)
        result = one.finish()
    assert result.code == 0 and "cache restarts 1" in result.stdout, result.stderr
    assert result.digest == calm
    assert after <= before < SLAB * 3 // 4, result.stderr


def test_a_rank_that_takes_memory_over_has_no_second_one(start, large_tree, calm):
    """A control group that has no room for two slabs counts the slab once, while a rank and its
    successor both have it."""
    with memory_group().limited(SLAB * 7 // 4):
        one = start(**training(large_tree, 0))
        one.wait_for_batches(BATCHES + 5)
        old = one.ranks()
        one.kill(old)
        wait_for_the_cache(one, old)
        after = noted(one)
        result = one.finish()
    assert result.code == 0 and "cache restarts 1" in result.stdout, result.stderr
    (kept, of) = map(int, re.search(r'samples: kept (\d+) of (\d+)', result.stderr).groups())
    assert kept >= 0.99 * of > 0.5 * SAMPLES and after == SLAB, result.stderr
    assert result.digest == calm


def test_a_rank_waits_for_the_memory_of_the_one_before(hungry, calm):
    with limited():
        one = hungry(0)
        one.wait_for_batches(5)
        old, trainers = one.ranks(), one.trainers()
        one.kill(trainers, signal.SIGSTOP)  # while it maps the old memory
        one.kill(old)
        one.wait_for(lambda: "waiting for memory" in one.text("stderr"), "the rank waited")
        one.kill(trainers, signal.SIGCONT)
        wait_for_the_cache(one, old)
        after = noted(one)
        result = one.finish()
    assert result.code == 0 and "cache restarts 1" in result.stdout, result.stderr
    assert result.digest == calm and after == SLAB, result.stderr
