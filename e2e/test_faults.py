"""Ranks die; training continues, on the same stream, and every draw is counted once."""

import re
import shlex
import shutil
import signal
import sys

import numpy
import pytest
from dataset import BATCHES, EPOCHS, GLOBAL_BATCH, SAMPLES
from run import ROOT, training


ALONE = 2  # batches that are trained without the cache


@pytest.fixture
def disturbed(start, reference):
    """disturbed(hurt, pause, **way) trains with pads while hurt(run) does harm; returns the result,
    checked."""

    def disturbed(hurt, pause, args=(), **way):
        one = start(**way, pause=pause, args=["--epochs", EPOCHS, "--sampler", "pads", *args])
        hurt(one)
        result = one.finish().check(EPOCHS, SAMPLES)
        assert result.batches == reference("pads").batches
        read = result.summary["storage_reads"] + result.summary["fallback_reads"]
        assert re.search(rf"^ *all .* {read:,}, ", result.stdout, re.MULTILINE), result.stdout
        return result

    return disturbed


def kill_ranks(run, batch, count=None, back=True):
    """Kills ranks after global batch `batch`, where training pauses. The trainers are stopped until
    the ranks are dead, and continue when the cache is back (`back` True). Otherwise the launcher is
    stopped too, and the trainers continue without the cache to the next pause, ALONE batches later.
    Then the launcher continues, and training waits until the cache is back (False), or does not
    wait (None)."""
    run.wait_for_batches(batch)
    launcher, stopped = [] if back else [run.process.pid], run.trainers()
    run.kill(launcher + stopped, signal.SIGSTOP)
    old = run.ranks()
    run.kill(old[:count])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    if back:
        run.wait_for(lambda: run.ranks() and run.ready(len(old)), "the cache was back")
    run.kill(stopped, signal.SIGCONT)
    run.go(batch)
    if not back:
        run.wait_for_batches(batch + ALONE)
        run.kill(launcher, signal.SIGCONT)
        if back is False:
            run.wait_for(lambda: run.ranks() and run.ready(len(old)), "the cache was back")
        run.go(batch + ALONE)


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize(
    "ranks, mpi, killed",
    [
        (1, None, 1), pytest.param(2, "openmpi", 1, marks=pytest.mark.full), (2, "mpich", 1),
        (4, "openmpi", 4),
    ],
)
def test_ranks_killed_in_mid_epoch(disturbed, ranks, mpi, killed, back):
    """Without the cache a trainer reads storage."""
    at = BATCHES + 5
    way = {} if back else {"memory": "2%", "window": "32KiB"}
    pause = [at] if back else [at, at + ALONE]
    result = disturbed(
        lambda run: kill_ranks(run, at, killed, back), pause, ranks=ranks, mpi=mpi, **way
    )
    assert back or result.summary["fallback_reads"] > 0
    assert "cache restarts 1" in result.stdout


@pytest.mark.parametrize("batch", [5, pytest.param(BATCHES - 2, marks=pytest.mark.full)])
def test_losses_that_are_not_finite(start, tmp_path, batch):
    """Mixed precision sometimes yields NaN; that does not make the newest batch's report get lost
    with a rank."""
    rng = numpy.random.default_rng(3)
    losses = rng.exponential(size=(EPOCHS, SAMPLES)).astype("float32")
    losses[rng.random(losses.shape) < 0.2] = numpy.nan
    losses[rng.random(losses.shape) < 0.02] = numpy.inf
    numpy.save(tmp_path / "losses.npy", losses)
    args = ["--epochs", EPOCHS, "--sampler", "pads", "--losses", tmp_path / "losses.npy"]
    undisturbed = start(memory="0", args=args).finish().check(EPOCHS, SAMPLES)
    one = start(ranks=2, args=args, pause=[batch])
    kill_ranks(one, batch, 1)
    assert one.finish().check(EPOCHS, SAMPLES).batches == undisturbed.batches


@pytest.mark.parametrize("batch", [BATCHES - 1, EPOCHS * BATCHES - 2])
def test_killed_near_the_end_of_an_epoch(disturbed, batch):
    """The last eighth of an epoch comes after the cut: the next plan may be made already."""
    disturbed(lambda run: kill_ranks(run, batch), [batch], ranks=2)


@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=pytest.mark.full)])
def test_killed_while_training_goes_on(disturbed, torch):
    """One trainer may have the next epoch's plan, and wait for the other, when the other's rank
    dies."""
    batch = BATCHES - 1
    last = EPOCHS * BATCHES - 1  # training does not end before the rank has died

    def hurt(run):
        run.wait_for_batches(batch)
        (victim, *_) = run.ranks()
        run.kill([victim])
        run.wait_for(lambda: victim not in run.ranks(), "the rank was dead")
        run.go(last)

    disturbed(hurt, [last], ranks=2, torch=torch, args=["--workers", 1] if torch else [])


def test_killed_in_the_last_epoch(disturbed):
    """The cache does not come back before training has ended."""
    at = EPOCHS * BATCHES - 4
    disturbed(lambda run: kill_ranks(run, at, back=None), [at, at + ALONE])


@pytest.mark.parametrize("back", [True, pytest.param(False, marks=pytest.mark.full)])
def test_workers_outlive_ranks(disturbed, back):
    at = BATCHES + 5
    workers = ["--workers", 2]
    pause = [at] if back else [at, at + ALONE]
    disturbed(lambda run: kill_ranks(run, at, back=back), pause, ranks=2, torch=True, args=workers)


def test_mpirun_killed(disturbed):
    def hurt(run):
        run.wait_for_batches(5)
        old = set(run.ranks())
        run.kill(run.mpiruns())
        run.wait_for(lambda: set(run.ranks()) - old, "ranks were restarted")
        run.go(5)

    assert "cache restarts 1" in disturbed(hurt, [5], ranks=2).stdout


def test_silent_rank(start):
    """A rank that does not answer for a while is not dead: the other one reads storage, and
    receives its late answers."""
    way = dict(ranks=2, memory="100%", options=["--tune", "peer-timeout=50ms"])
    way["command"] = [
        sys.executable, ROOT / "e2e" / "loader_modes.py", "in process", 50, GLOBAL_BATCH // 2,
    ]
    streams = [f"digest-tree-{trainer}" for trainer in range(2)]
    one = start(**way)
    one.wait_for(lambda: one.text(streams[0]) and one.text(streams[1]), "both trainers had a batch")
    (silent, *_) = one.ranks()
    one.kill([silent], signal.SIGSTOP)
    one.wait_for(lambda: "a peer is silent" in one.text("stderr"), "the peer was missed")
    one.kill([silent], signal.SIGCONT)
    assert one.finish().check(50, SAMPLES).summary["fallback_reads"] > 0
    undisturbed = start(**way)
    undisturbed.finish()
    assert [one.text(name) for name in streams] == [undisturbed.text(name) for name in streams]


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_launcher_killed(start, train, mpi):
    one = start(ranks=2, mpi=mpi, args=["--epochs", 10**6])
    one.wait_for_batches(5)
    folder = one.session()
    one.kill([one.process.pid])
    one.process.wait()
    assert not one.remains(allowed=[folder.name])
    train(args=["--epochs", 1])  # another run may have removed the folder before
    assert not folder.exists()


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.full)])
def test_a_working_folder_that_was_removed(start, reference, tmp_path, mpi):
    """The cache restarts; training works in another folder."""
    own = tmp_path / "own"
    own.mkdir()
    words = training(["--epochs", EPOCHS, "--sampler", "pads"], trainers=2, pause=[BATCHES])
    line = shlex.join(["cd", str(own)]) + " && exec " + shlex.join(map(str, words))
    options, env = ["--log", own / "run.jsonl"], {"RANKPOOL_PLAN_TIMEOUT": "20"}
    one = start(ranks=2, mpi=mpi, command=["sh", "-c", line], options=options, env=env)
    removed, one.folder = one.folder, own
    one.wait_for_batches(BATCHES)
    shutil.rmtree(removed)
    old = one.ranks()
    one.kill(old)
    one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were dead")
    one.go(BATCHES)
    result = one.finish().check(EPOCHS, SAMPLES)
    assert result.batches == reference("pads").batches
