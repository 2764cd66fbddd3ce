"""An output that blocks or fails, such as a full disk or an unread pipe, holds up neither training
nor the end of a run."""

import os
import shutil
import threading

import pytest
from dataset import BATCHES, EPOCHS

ARGS = ["--epochs", EPOCHS, "--sampler", "pads"]


def check(result, reference):
    """Asserts that a run without a run log has trained on the reference's stream, and ended
    well."""
    assert result.code == 0, result.stderr
    assert result.batches == reference("pads").batches


@pytest.mark.parametrize("ranks", [1, 2])
def test_log_on_a_full_device(train, reference, tmp_path, ranks):
    full = tmp_path / "full"
    os.mknod(full, 0o20666, os.makedev(1, 7))  # as /dev/full
    result = train(ranks=ranks, args=ARGS, options=["--log", full, "--tune", "log-every=10ms"])
    check(result, reference)
    assert result.stderr.count("the run log cannot be written") == 1
    assert f"--log {full} is not a regular file" in result.stderr


def test_log_to_a_fifo(start, reference, tmp_path):
    fifo, lines = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: lines.extend(fifo.open()))
    reader.start()
    check(start(args=ARGS, options=["--log", fifo]).finish(), reference)
    reader.join()
    assert sum('"event":"epoch"' in line for line in lines) == EPOCHS


@pytest.mark.parametrize("ranks", [1, 2])
def test_stderr_that_nobody_reads(start, reference, ranks):
    """The launcher, the ranks and the trainers all write messages when a rank dies."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    one = start(ranks=ranks, args=ARGS, options=["-v"], stderr=write, pause=[BATCHES])
    one.wait_for_batches(BATCHES)
    (victim, *_) = one.ranks()
    one.kill([victim])
    one.wait_for(lambda: victim not in one.ranks(), "the rank was dead")
    one.go(BATCHES)
    check(one.finish(), reference)
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("ranks", [1, 2])
def test_stderr_that_nobody_has_open(start, reference, ranks):
    """As with a `| tee` that was killed."""
    read, write = os.pipe()
    os.close(read)
    one = start(ranks=ranks, args=ARGS, options=["-v"], stderr=write, pause=[BATCHES])
    os.close(write)
    one.wait_for_batches(BATCHES)
    victim = one.ranks()[0]
    one.kill([victim])
    one.wait_for(lambda: victim not in one.ranks(), "the rank was dead")
    one.go(BATCHES)
    check(one.finish(), reference)


@pytest.mark.parametrize("ranks", [1, 2])
def test_outputs_that_cannot_be_written_when_the_cache_restarts(start, reference, tmp_path, ranks):
    """Somebody has removed their folder."""
    out = tmp_path / "out"
    out.mkdir()
    options = ["--log", out / "log"]
    one = start(
        ranks=ranks, args=ARGS, options=options, env={"RANKPOOL_PLAN_TIMEOUT": "20"},
        pause=[BATCHES - 1],
    )
    one.wait_for_batches(BATCHES - 1)
    shutil.rmtree(out)
    old = one.ranks()
    one.kill(old)
    one.wait_for(lambda: not set(old) & set(one.ranks()), "the ranks were dead")
    one.go(BATCHES - 1)
    result = one.finish()
    check(result, reference)
    assert "the run log cannot be written" in result.stderr
