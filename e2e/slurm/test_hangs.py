"""A rank on another node that hangs is missed by the others, and the cache is started again."""

import shlex
import signal

import pytest
import run
from dataset import BATCHES, EPOCHS, SAMPLES


def script(tree, *options):
    """Returns a batch script that trains with one trainer a node on two nodes, and stands still after a few batches."""
    train = run.training(["--epochs", EPOCHS, "--sampler", "pads"], 2, pause=[BATCHES])
    words = ["rankpool", "run", "--data", tree, "--memory", "20%", "--window", "1MiB", "--log", "run.jsonl", *options, "--", *train]
    return shlex.join(map(str, words))


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_rank_that_hangs_for_good_on_another_node(submit, tree, reference, mpi):
    job = submit(script(tree, "--rank-timeout", "2s"), mpi=mpi, options=["--nodes=2", "--ntasks-per-node=1"])
    job.wait_for_batches(BATCHES)
    job.kill(job.ranks("node2"), signal.SIGSTOP)
    job.go(BATCHES)
    result = job.finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference("pads").batches
    assert "rank 0: rank 1 has not answered for 2.25s: its process is stopped or hangs" in result.stderr
    assert "cache restarts 1" in result.stdout
