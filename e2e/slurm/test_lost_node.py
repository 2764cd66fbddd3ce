"""A node of the job is lost, and the job goes on without it (sbatch --no-kill): training ends."""

import os
import signal

import pytest
import testbed
from dataset import BATCHES


@pytest.fixture
def own_bed():
    """A testbed for this test alone, because it loses a node."""
    bed = testbed.Testbed()
    try:
        bed.up()
        yield bed
    finally:
        bed.down()


def lose(bed, job, node):
    """Kills everything on a node, so that nothing more can start there."""
    os.kill(int((bed.folder / f"slurmd.{node}.pid").read_text()), signal.SIGKILL)
    job.kill([pid for pid, (env, _) in job.processes().items() if f"SLURMD_NODENAME={node}" in env])


@pytest.mark.full
@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_a_lost_node_ends_training(own_bed, words, tmp_path, mpi):
    """Training runs on the first nodes, and reads storage until Slurm has given up another one."""
    cache, train = words(
        1, pause=[BATCHES + 5], **{"--tune": "window=1MiB,rank-timeout=4s,start-timeout=15s"}
    )
    script = f"export SLURM_NTASKS=1\nunset SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE\nrankpool run {cache} -- {train}"
    job = testbed.Job(
        own_bed,
        tmp_path,
        script,
        mpi=mpi,
        options=["--nodes=3", "--ntasks-per-node=1", "--no-kill"],
    )
    job.wait_for_batches(BATCHES + 5)
    lose(own_bed, job, "node2")
    result = job.finish(left_sessions=True)
    assert result.code not in (0, 253), result.stderr
    sentence = "the job has lost node2, whose rank cannot be started again"
    assert result.stderr.count(sentence) == 1, result.stderr
