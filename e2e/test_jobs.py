"""Several trainings share a cache: each sees the stream that it would see alone.

The first one pauses in the middle of its first epoch, where the second one begins; the second one
pauses in the middle of its own.
"""

import json
import signal
import sys

import pytest
import run
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES
from run import ROOT

TRAINER = ROOT / "e2e" / "trainer.py"

JOBS = {
    "a": dict(seed=1, batch=GLOBAL_BATCH, pause=BATCHES // 2),
    "b": dict(seed=2, batch=GLOBAL_BATCH // 2, pause=BATCHES),
}


def trainer(job, ranks):
    """The shell command of a job's trainer on one rank."""
    of = JOBS[job]
    return (
        f"RANKPOOL_JOB={job} MASTER_PORT=$((MASTER_PORT + {of['seed']})) {sys.executable} "
        f"{run.HERE / 'paused.py'} {of['pause']} {TRAINER} "
        f"--epochs {EPOCHS} --batch-size {of['batch'] // ranks} --seed {of['seed']} "
        f"--digest-log digest-{job}"
    )


def both(ranks):
    """A command that trains both jobs; the second begins at the first one's pause."""
    first, second = trainer("a", ranks), trainer("b", ranks)
    begun = (
        f"until [ -f digest-a ] && [ $(wc -l < digest-a) -ge {JOBS['a']['pause']} ]; "
        "do sleep 0.01; done"
    )
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


def wait_for_pause(one, job):
    pause = JOBS[job]["pause"]
    one.wait_for(lambda: len(lines(one, job)) >= pause, f"job {job} trained {pause} batches")


def go(one, *jobs):
    for job in jobs:
        one.go(JOBS[job]["pause"])


@pytest.mark.parametrize("ranks", [1, 2, pytest.param(4, marks=pytest.mark.full)])
def test_two_trainings(start, alone, ranks):
    one = start(ranks=ranks, memory="20%", command=both(ranks))
    wait_for_pause(one, "b")
    go(one, "a", "b")
    result = one.finish()
    assert result.code == 0, result.stderr
    for job in JOBS:
        assert lines(one, job) == alone(job), f"job {job}\n{result.stderr}"
        epochs = [e for e in result.events if e["event"] == "job" and e["job"] == job]
        assert [e["epoch"] for e in epochs] == list(range(EPOCHS))
        assert all(e["draws"] == SAMPLES for e in epochs)


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.full), 2])
def test_ranks_that_die(start, alone, ranks):
    one = start(ranks=ranks, memory="20%", command=both(ranks))
    wait_for_pause(one, "b")
    one.kill(one.ranks()[:1])
    go(one, "a", "b")
    result = one.finish()
    assert result.code == 0, result.stderr
    for job in JOBS:
        assert lines(one, job) == alone(job), f"job {job}\n{result.stderr}"


def test_a_training_that_dies(start, alone):
    one = start(ranks=2, memory="20%", command=both(2))
    wait_for_pause(one, "b")
    one.kill(
        [pid for pid, (env, _) in one.processes().items() if "RANKPOOL_JOB=a" in env],
        signal.SIGKILL,
    )
    go(one, "b")
    result = one.finish()
    assert result.code != 0
    assert lines(one, "b") == alone("b"), result.stderr


def test_started_together(start, alone):
    """run --trainings: the first training fails in the middle of its first epoch, the second one
    continues, and the exit code is the first one's."""
    words = [
        f"RANKPOOL_JOB={job} {sys.executable} {run.HERE / 'paused.py'} {of['pause']} {TRAINER} "
        f"--epochs {EPOCHS} --batch-size {of['batch'] // 2} --seed {of['seed']} "
        f"--digest-log digest-{job}"
        for job, of in JOBS.items()
    ]
    command = ["sh", "-c", f"[ $RANKPOOL_TRAINING = 1 ] && exec env {words[1]}; exec env {words[0]}"]
    one = start(memory="20%", trainers_per_rank=2, options=["--trainings", 2], command=command)
    wait_for_pause(one, "a")
    wait_for_pause(one, "b")
    one.kill([pid for pid, (env, _) in one.processes().items() if "RANKPOOL_JOB=a" in env])
    one.wait_for(lambda: "the other trainings continue" in one.text("stderr"), "one was missed")
    go(one, "b")
    result = one.finish()
    assert result.code == 128 + signal.SIGKILL, result.stderr
    assert lines(one, "b") == alone("b"), result.stderr
    assert "rankpool: training 0, trainer" in result.stderr


def test_a_newcomer_begins_where_the_others_are(start, tree, tmp_path):
    """Job b begins with the chunk that job a uses next, and from that chunk on draws what it would
    draw alone; its checkpoint has the chunk."""

    def trainer(job, seed, pause, first):
        return (
            f"RANKPOOL_JOB={job} {sys.executable} {run.HERE / 'paused.py'} {pause} {TRAINER} "
            f"--sampler chunks --epochs {EPOCHS} --batch-size {GLOBAL_BATCH} --seed {seed} "
            f"--ahead 1 --first-chunk {first} --digest-log digest-{job} --save state-{job}"
        )

    half = BATCHES // 2
    begun = f"until [ -f digest-a ] && [ $(wc -l < digest-a) -ge {half} ]; do sleep 0.01; done"
    both = f"{trainer('a', 1, half, 0)} & {begun}; {trainer('b', 2, 1, 'others')}; wait $!"
    one = start(memory="20%", command=["sh", "-c", both])
    one.wait_for(lambda: lines(one, "b"), "job b trained a batch")
    one.go(half)
    one.go(1)
    result = one.finish()
    assert result.code == 0, result.stderr
    first = json.loads(one.text("state-b"))["first_chunk"]
    # the rank learns of a batch when the next ones are requested
    assert first in {(half - 2) * 10 // BATCHES + 1, half * 10 // BATCHES + 1}
    args = [
        "--sampler", "chunks", "--epochs", EPOCHS, "--batch-size", GLOBAL_BATCH, "--seed", 2,
        "--first-chunk", first,
    ]  # fmt: skip
    alone = tmp_path / "alone"
    alone.mkdir()
    other = run.start(alone, tree, memory="0", args=args).finish().check(EPOCHS, SAMPLES)
    assert lines(one, "b") == other.batches, result.stderr
