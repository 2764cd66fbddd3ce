"""What the tests under Slurm share: a testbed for the whole session, and functions that submit
jobs."""

import itertools
import shlex
import shutil

import pytest
import run
from dataset import EPOCHS, SAMPLES
from testbed import Job, Testbed


def pytest_sessionstart(session):
    missing = [
        tool
        for tool in ("munged", "slurmctld", "slurmd", "sbatch", "srun")
        if not shutil.which(tool)
    ]
    if missing:
        raise pytest.UsageError(f"{', '.join(missing)} missing: run scripts/deps.sh test")


@pytest.fixture(scope="session")
def bed():
    bed = Testbed()
    try:
        bed.up()
        yield bed
    finally:
        bed.down()


@pytest.fixture
def submit(bed, tmp_path):
    """submit(script, mpi=…, options=[…]) submits a batch script in a folder of its own; see
    testbed.Job."""
    numbers, jobs = itertools.count(), []

    def submit(script, **what):
        folder = tmp_path / f"job{next(numbers)}"
        folder.mkdir()
        jobs.append(Job(bed, folder, script, **what))
        return jobs[-1]

    yield submit
    for job in jobs:
        if job.state()["JobState"] in ("PENDING", "RUNNING", "SIGNALING", "COMPLETING"):
            job.cancel()
        job.kill(job.processes())


@pytest.fixture
def words(tree, losses):
    """words(trainers) returns, for a script, the options of the cache and the training command with
    its digest; `torch` and `pause` are those of run.training."""

    def words(trainers, torch=False, pause=(), **options):
        options = {
            "--data": tree,
            "--memory": "20%",
            "--tune": "window=1MiB",
            "--log": "run.jsonl",
            **options,
        }
        cache = [word for pair in options.items() for word in pair]
        args = ["--epochs", EPOCHS, "--sampler", "pads", *(losses if torch else [])]
        train = run.training(args, trainers, torch, pause)
        return shlex.join(map(str, cache)), shlex.join(map(str, train))

    return words


@pytest.fixture
def same_stream(reference):
    """same_stream(job) waits for a job's end and asserts that it trained on the reference's stream;
    returns the result."""

    def same_stream(job):
        result = job.finish().check(EPOCHS, SAMPLES)
        assert result.batches == reference("pads").batches
        return result

    return same_stream
