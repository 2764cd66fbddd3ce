"""Every wait ends: with ranks that hang, and with starts that fail."""

import fcntl
import os
import signal
import subprocess
import threading

import pytest
import run
from dataset import BATCHES, EPOCHS, SAMPLES

QUICK = ["--tune", "rank-timeout=3s"]


@pytest.fixture
def disturbed(start, reference):
    """disturbed(hurt, at, **way) trains with pads, and pauses after `at` batches while hurt(run)
    does harm; returns the result, checked."""

    def disturbed(hurt, at, args=(), options=(), **way):
        args = ["--epochs", EPOCHS, "--sampler", "pads", *args]
        one = start(**way, pause=[at], args=args, options=[*QUICK, *options])
        one.wait_for_batches(at)
        hurt(one)
        one.go(at)
        result = one.finish().check(EPOCHS, SAMPLES)
        assert result.batches == reference("pads").batches
        return result

    return disturbed


def stop_a_rank(run):
    """Stops the last rank for good."""
    run.kill(run.ranks()[-1:], signal.SIGSTOP)


@pytest.mark.parametrize(
    "ranks, mpi, at",
    [
        (1, None, 5), (2, "openmpi", BATCHES), (2, "mpich", 5),
        pytest.param(1, None, BATCHES, marks=pytest.mark.full),
        pytest.param(2, "openmpi", 5, marks=pytest.mark.full),
        pytest.param(2, "mpich", BATCHES, marks=pytest.mark.full),
    ],
)  # fmt: skip
def test_rank_that_hangs_for_good(disturbed, ranks, mpi, at):
    result = disturbed(stop_a_rank, at, ranks=ranks, mpi=mpi)
    assert "has not answered for 3" in result.stderr  # s, or 3.375 s if a rank says so
    assert "cache restarts 1" in result.stdout


@pytest.mark.parametrize("mpi", ["openmpi", pytest.param("mpich", marks=pytest.mark.full)])
def test_restarted_rank_that_hangs_before_it_is_ready(disturbed, mpi):
    """It waits for the other rank, which waits for the lock of its folder. It was last heard from
    in MPI_Init."""

    def hurt(one):
        first, second = (one.session() / f"r{rank}" for rank in range(2))
        before = (second / "lock").read_text()
        with open(first / "lock", "r+b") as lock:
            takes = threading.Thread(target=fcntl.flock, args=(lock, fcntl.LOCK_EX))
            takes.start()  # before the next rank does
            one.kill(one.ranks())
            takes.join()
            one.wait_for(
                lambda: (second / "lock").read_text() not in ("", before)
                and (second / "met").exists(),  # it was removed for this start
                "the second rank has met the first",
            )
            one.kill([int((second / "lock").read_text())], signal.SIGSTOP)

    result = disturbed(hurt, 5, ranks=2, mpi=mpi)
    assert "rank 1 has not answered for 3" in result.stderr
    assert "cache restarts 2" in result.stdout


def in_a_small_machine(limit, command):
    """Returns a command in a mount namespace of its own, with little of some resource."""
    return ["unshare", "--mount", "sh", "-c", f'{limit}; exec "$@"', "sh", *map(str, command)]


LITTLE_SHM = "mount -t tmpfs -o size=1m tmpfs /dev/shm"
FEW_FILES = "ulimit -n 24"


@pytest.mark.parametrize(
    "mpi, limit",
    [
        ("mpich", FEW_FILES),
        ("openmpi", FEW_FILES),
        # Debian 13's MPICH starts without shared memory
        pytest.param("mpich", LITTLE_SHM, marks=pytest.mark.full),
        pytest.param("openmpi", LITTLE_SHM, marks=pytest.mark.full),
    ],
)
def test_first_start_that_fails(tree, tmp_path, mpi, limit):
    command = [
        run.RANKPOOL, "run", "--ranks", 2, "--data", tree, "--",
        "touch", tmp_path / "trained",
    ]
    done = subprocess.run(
        in_a_small_machine(limit, command), capture_output=True, text=True,
        timeout=run.PATIENCE_SECONDS, check=False,
        env={**os.environ, "RANKPOOL_MPI_LIBRARY": run.LIBRARY[mpi]},
    )
    assert done.returncode == 1, done.stderr
    assert not (tmp_path / "trained").exists()
    last = done.stderr.replace("\0", "").splitlines()[-1]  # Open MPI 5 ends its output with a NUL
    assert last.startswith("rankpool: the cache ended before it was ready ("), done.stderr
    assert last.endswith('see what "rankpool doctor" finds on the nodes'), done.stderr


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.full)])
def test_training_goes_on_without_a_rank_that_hangs(start, reference, workers):
    """The rank is not ended in time, but training needs no more plans."""
    args = ["--epochs", EPOCHS, "--sampler", "pads", *(["--workers", workers] if workers else [])]
    options, at = ["--tune", "rank-timeout=1h"], (EPOCHS - 1) * BATCHES + 1
    env = {"RANKPOOL_BATCH_TIMEOUT": "0.5"}
    one = start(args=args, options=options, env=env, torch=workers > 0, pause=[at])
    one.wait_for_batches(at)
    one.kill(one.ranks(), signal.SIGSTOP)
    one.go(at)
    result = one.finish()
    assert result.code == 0 and result.batches == reference("pads").batches, result.stderr
    assert (
        result.stderr.count("the cache has not answered for 0.5 s; reading storage until it does")
        == 1
    )


def test_no_plan_from_a_rank_that_hangs(start):
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    env = {"RANKPOOL_BATCH_TIMEOUT": "0.2", "RANKPOOL_PLAN_TIMEOUT": "1"}
    one = start(args=args, options=["--tune", "rank-timeout=1h"], env=env, pause=[BATCHES])
    one.wait_for_batches(BATCHES)
    one.kill(one.ranks(), signal.SIGSTOP)
    one.go(BATCHES)
    result = one.finish()
    assert result.code == 1
    assert "rankpool: waited 1 s in vain for the cache to plan epoch 1" in result.stderr
