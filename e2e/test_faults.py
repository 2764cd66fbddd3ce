"""Ranks die; training goes on, on the same stream, and every draw is counted once."""

import signal

import pytest
from conftest import BATCHES, EPOCHS, SAMPLES


@pytest.fixture
def disturbed(start, reference, losses):
    """disturbed(hurt, **way) trains with pads while hurt(run) does harm; returns the result, checked."""

    def disturbed(hurt, **way):
        one = start(**way, args=["--epochs", EPOCHS, "--sampler", "pads", *losses])
        hurt(one)
        result = one.finish().check(EPOCHS, SAMPLES)
        assert result.batches == reference("pads").batches
        assert f"fallback reads {result.summary['fallback_reads']}," in result.stdout
        return result

    return disturbed


def kill_ranks(run, batch, count=None, back=True):
    """Kills ranks when global batch `batch` is trained. Training stands still until they are dead, and goes on when
    the cache is back, or without it."""
    run.wait_for_batches(batch)
    stopped = run.trainers()
    run.kill(stopped, signal.SIGSTOP)
    old = run.ranks()
    run.kill(old[:count])
    run.wait_for(lambda: not set(old) & set(run.ranks()), "the ranks were dead")
    if back:
        run.wait_for(lambda: run.ranks() and run.ready(len(old)), "the cache was back")
    run.kill(stopped, signal.SIGCONT)


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize("ranks, mpi, killed", [(1, "nompi", 1), (2, "openmpi", 1), (2, "mpich", 1), (4, "openmpi", 4)])
def test_ranks_killed_in_mid_epoch(disturbed, ranks, mpi, killed, back):
    result = disturbed(lambda run: kill_ranks(run, BATCHES + 5, killed, back), ranks=ranks, mpi=mpi)
    assert result.summary["fallback_reads"] > 0 or back
    assert "cache restarts 1" in result.stdout


def test_killed_in_two_epochs(disturbed):
    def hurt(run):
        kill_ranks(run, 5)
        kill_ranks(run, BATCHES + 3)

    assert "cache restarts 2" in disturbed(hurt, ranks=2).stdout


@pytest.mark.parametrize("batch", [BATCHES - 3, BATCHES - 2, BATCHES - 1, BATCHES, EPOCHS * BATCHES - 2])
def test_killed_near_the_end_of_an_epoch(disturbed, batch):
    """The last eighth of an epoch comes after the cut: the next plan may be made already."""
    disturbed(lambda run: kill_ranks(run, batch), ranks=2)


def test_killed_in_the_last_epoch(disturbed):
    """The cache does not come back before training has ended."""
    disturbed(lambda run: kill_ranks(run, EPOCHS * BATCHES - 4, back=False))


def test_workers_outlive_ranks(disturbed, start, reference, losses):
    args = ["--epochs", EPOCHS, "--sampler", "pads", "--workers", 2, *losses]
    one = start(ranks=2, args=args)
    kill_ranks(one, BATCHES + 5)
    assert one.finish().check(EPOCHS, SAMPLES).digest == reference("pads").digest


def test_launcher_killed(start, train):
    one = start(ranks=2, args=["--epochs", 100])
    one.wait_for_batches(5)
    folder = one.session()
    one.kill([one.process.pid])
    one.process.wait()
    assert not one.remains(allowed=[folder.name])
    assert folder.exists()
    train(args=["--epochs", 1])
    assert not folder.exists()
