"""A node of the job is lost, and the job goes on without it (sbatch --no-kill): so does the
cache."""

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
@pytest.mark.parametrize(
    "mpi, nodes, trainers, lost, left",
    [
        ("openmpi", 3, 1, "node2", "node[1,3]"),
        ("mpich", 3, 1, "node2", "node[1,3]"),
        ("openmpi", 2, 1, "node2", "node1"),
        ("openmpi", 3, 2, "node3", "node[1-2]"),
        ("mpich", 3, 2, "node3", "node[1-2]"),
        ("mpich", 4, 3, "node4", "node[1-3]"),
    ],
)
def test_the_cache_goes_on_without_a_lost_node(
    own_bed, words, same_stream, tmp_path, mpi, nodes, trainers, lost, left
):
    """Training runs on the first nodes, and is paused until Slurm has given up another one and the
    cache is back. Its plans were for the ranks of all nodes."""
    cache, train = words(
        trainers, pause=[BATCHES + 5], **{"--rank-timeout": "4s", "--start-timeout": "15s"}
    )
    script = f"export SLURM_NTASKS={trainers}\nunset SLURM_NTASKS_PER_NODE SLURM_TASKS_PER_NODE\nrankpool run {cache} -- {train}"
    job = testbed.Job(
        own_bed,
        tmp_path,
        script,
        mpi=mpi,
        options=[f"--nodes={nodes}", "--ntasks-per-node=1", "--no-kill"],
    )
    job.wait_for_batches(BATCHES + 5)
    lose(own_bed, job, lost)
    sentence = f"{lost} of this job is lost: the cache continues without its memory, on {left}"
    job.wait_for(lambda: sentence in job.text("stderr"), "the cache was started around the node")
    job.wait_for(lambda: len(job.ranks()) == nodes - 1, "the other ranks were back")
    job.go(BATCHES + 5)
    same_stream(job)
