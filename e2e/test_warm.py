"""What the nodes had in memory is served again without storage when a rank has died.

The trainer is train.py, or trainer.py, which uses samples in place: then a rank takes the memory
back when the script has gone on to its next batch.
"""

import os
import random
import re
import signal
import struct

import pytest
from dataset import BATCHES, EPOCHS, SAMPLES
from run import slab_of
from test_top import top

RANKS = 4
KILLS = [BATCHES + 3, BATCHES + 9, 2 * BATCHES + 2]  # of one rank each, in mid-epoch
KEPT = re.compile(r'samples: kept (\d+) of (\d+)')
# batches that are trained without the cache: more than a script has requested, which it may hold
ALONE = 4
MPI = ["openmpi", pytest.param("mpich", marks=pytest.mark.full)]


def kill_one(run, batch, alone):
    """Kills a rank while training is paused after a batch. Training continues when the cache is
    back; or for `alone` batches before that, with the launcher stopped, and then pauses again."""
    run.wait_for_batches(batch)
    old, launcher = run.ranks(), [run.process.pid] if alone else []
    run.kill(launcher, signal.SIGSTOP)
    run.kill(old[:1])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    if alone:
        run.go(batch)
        batch += alone
        run.wait_for_batches(batch)
    run.kill(launcher, signal.SIGCONT)
    run.wait_for(lambda: run.ranks() and run.ready(RANKS), "the cache was back")
    return batch


def disturbed(start, calm, alone, **way):
    """Trains with three kills, and returns the result, and what top printed after the last one."""
    one = start(**way, pause=sorted({batch + more for batch in KILLS for more in (0, alone)}))
    for batch in KILLS:
        batch = kill_one(one, batch, alone)
        if batch - alone == KILLS[-1]:
            one.wait_for(lambda: "kept" in top(one), "top told what was kept")
            said = top(one)
        one.go(batch)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.digest == calm.digest
    return result, said


def check_kept(result, said, calm):
    """Checks that nearly all residents are kept each time, in the log, in top and in the run log,
    and that the ranks read hardly more from storage than those of a calm training."""
    kept = [tuple(map(int, found)) for found in KEPT.findall(result.stderr)]
    assert len(kept) == RANKS * len(KILLS), result.stderr
    assert all(n >= 0.99 * of and of >= SAMPLES // 20 for n, of in kept), str(kept)
    last = [sum(column) for column in zip(*kept[-RANKS:])]
    assert "kept {} of {} samples in memory".format(*last) in said, said
    nodes = {event["rank"]: event for event in result.events if event["event"] == "node"}
    assert [sum(node[name] for node in nodes.values()) for name in ("kept", "kept_of")] == last
    assert result.summary["storage_reads"] <= 1.03 * calm.summary["storage_reads"]


@pytest.mark.parametrize("mpi", MPI)
def test_what_was_in_memory_is_kept(start, mpi):
    args = ["--epochs", EPOCHS, "--sampler", "torch"]
    way = dict(ranks=RANKS, mpi=mpi, memory="40%", args=args, torch=True)
    calm = start(**way).finish().check(EPOCHS, SAMPLES)
    result, said = disturbed(start, calm, 0, **way)
    check_kept(result, said, calm)


@pytest.mark.parametrize("mpi", MPI)
def test_what_scripts_use_in_place_is_kept(start, mpi):
    """The scripts go on meanwhile, and release what they used."""
    way = dict(ranks=RANKS, mpi=mpi, memory="40%")
    args = ["--epochs", EPOCHS, "--sampler", "torch", "--ahead", 1]
    calm = start(**way, args=args).finish().check(EPOCHS, SAMPLES)
    result, said = disturbed(start, calm, ALONE, **way, args=args)
    check_kept(result, said, calm)


def test_a_directory_that_somebody_writes_to(start, reference):
    """A rank that finds something that it did not write ends with a sentence, and its successor
    begins with empty memory."""
    at = BATCHES + 3
    one = start(ranks=2, args=["--epochs", EPOCHS, "--sampler", "pads"], pause=[at])
    one.wait_for_batches(at)
    victim = one.ranks()[0]
    fd = slab_of(victim)
    size = os.fstat(fd).st_size
    (begin,) = struct.unpack("<Q", os.pread(fd, 8, size - 8))
    samples, words = struct.unpack("<QQ", os.pread(fd, 16, begin + 32))
    os.pwrite(fd, random.Random(1).randbytes(8 * samples), begin + words)
    os.close(fd)
    one.go(at)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference("pads").batches
    assert "another process has written to the directory" in result.stderr
    assert "cache restarts 1" in result.stdout and "goroutine " not in result.stderr, result.stderr
