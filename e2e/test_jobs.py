"""Several trainings share a cache: each sees the stream that it sees alone."""

import signal
import sys

import pytest
import run
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES
from run import ROOT

TRAINER = ROOT / "e2e" / "trainer.py"

JOBS = {"a": dict(seed=1, batch=GLOBAL_BATCH), "b": dict(seed=2, batch=GLOBAL_BATCH // 2)}


def trainer(job, ranks):
    """The shell command of a job's trainer on one rank."""
    of = JOBS[job]
    return (
        f"RANKPOOL_JOB={job} MASTER_PORT=$((MASTER_PORT + {of['seed']})) {sys.executable} {TRAINER} "
        f"--epochs {EPOCHS} --batch-size {of['batch'] // ranks} --seed {of['seed']} "
        f"--digest-log digest-{job}"
    )


def both(ranks):
    """A command that trains both jobs, the second from the middle of the first one's epoch on."""
    first, second = trainer("a", ranks), trainer("b", ranks)
    begun = f"until [ -f digest-a ] && [ $(wc -l < digest-a) -gt {BATCHES // 2} ]; do sleep 0.01; done"
    return ["sh", "-c", f"{first} & {begun}; {second}; code=$?; wait $! && exit $code"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, tree):
    """alone(job) are the batches of a job without a cache or another job."""
    known = {}

    def alone(job):
        if job not in known:
            of = JOBS[job]
            args = ["--epochs", EPOCHS, "--seed", of["seed"], "--batch-size", of["batch"]]
            one = run.start(tmp_path_factory.mktemp("alone"), tree, memory="0", args=args)
            known[job] = one.finish().check(EPOCHS, SAMPLES).batches
        return known[job]

    return alone


def lines(one, job):
    return one.text(f"digest-{job}").splitlines()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_two_trainings(start, alone, ranks):
    one = start(ranks=ranks, memory="20%", command=both(ranks))
    result = one.finish()
    assert result.code == 0, result.stderr
    for job in JOBS:
        assert lines(one, job) == alone(job), f"job {job}\n{result.stderr}"
        epochs = [e for e in result.events if e["event"] == "job" and e["job"] == job]
        assert [e["epoch"] for e in epochs] == list(range(EPOCHS))
        assert all(e["draws"] == SAMPLES for e in epochs)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_die(start, alone, ranks):
    one = start(ranks=ranks, memory="20%", command=both(ranks))
    one.wait_for(lambda: len(lines(one, "b")) > BATCHES, "the second job trained")
    one.kill(one.ranks()[:1])
    result = one.finish()
    assert result.code == 0, result.stderr
    for job in JOBS:
        assert lines(one, job) == alone(job), f"job {job}\n{result.stderr}"


def test_a_training_that_dies(start, alone):
    one = start(ranks=2, memory="20%", command=both(2))
    one.wait_for(lambda: len(lines(one, "b")) > 5, "the second job trained")
    one.kill(
        [pid for pid, (env, _) in one.processes().items() if "RANKPOOL_JOB=a" in env],
        signal.SIGKILL,
    )
    result = one.finish()
    assert result.code != 0
    assert lines(one, "b") == alone("b"), result.stderr
