"""A rank of a job of two nodes dies in mid-epoch: what both nodes had in memory is served again
from the same memory, without storage.

Here the nodes are on one machine, without control groups, so the test looks at which memories the
job's processes have: a second one would count. ../test_shrink.py tests this in a control group.
"""

import os
import re

import pytest
from dataset import BATCHES

KEPT = re.compile(r'samples: kept (\d+) of (\d+)')


def memories(job):
    """The inodes of the memories for samples that a job's processes have."""
    found = set()
    for pid in job.processes():
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{fd}"
                if "rankpool-slab" in os.readlink(path):
                    found.add(os.stat(path).st_ino)
        except OSError:
            pass  # it has ended, or closed it
    return found


@pytest.mark.full
@pytest.mark.parametrize("mpi, node", [("openmpi", "node2"), ("mpich", "node1")])
def test_memory_is_taken_over(submit, words, same_stream, mpi, node):
    """Training, whose loader copies samples, is paused until the cache is back."""
    cache, train = words(2, torch=True, pause=[BATCHES + 5], **{"--memory": "40%"})
    job = submit(
        f"rankpool run {cache} -- {train}", mpi=mpi, options=["--nodes=2", "--ntasks-per-node=1"]
    )
    job.wait_for_batches(BATCHES + 5)
    old, before = job.ranks(), memories(job)
    assert len(old) == len(before) == 2
    job.kill(job.ranks(node))
    job.wait_for(lambda: not set(old) & set(job.ranks()), "the ranks were dead")
    job.wait_for(lambda: len(job.ranks()) == 2 and job.ready(2), "the cache was back")
    assert memories(job) == before
    job.go(BATCHES + 5)
    result = same_stream(job)
    kept = [tuple(map(int, found)) for found in KEPT.findall(result.stderr)]
    assert len(kept) == 2 and all(n >= 0.99 * of and of > 20 for n, of in kept), result.stderr
    assert "cache restarts 1" in result.stdout
