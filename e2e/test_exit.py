"""The exit code of a run is the training command's, and signals reach it."""

import re
import shutil
import signal
import subprocess

import pytest
from run import PATIENCE_SECONDS


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "script, code", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
def test_exit_code(train, ranks, script, code):
    assert train(ranks=ranks, command=["sh", "-c", script]).code == code


@pytest.mark.parametrize("code", [0, 7])
def test_exit_code_when_the_session_cannot_be_removed(start, code):
    """Needs root, to mount."""
    script = f"echo >> digest; until [ -e go-1 ]; do sleep 0.01; done; exit {code}"
    one = start(command=["sh", "-c", script])
    one.wait_for_batches(1)
    session = one.session()
    (session / "mounted").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", session / "mounted"], check=True)
    one.go(1)
    try:
        one.process.wait(PATIENCE_SECONDS)
    finally:
        subprocess.run(["umount", session / "mounted"], check=True)
    shutil.rmtree(session)
    result = one.finish()
    assert result.code == code and "the session folder cannot be removed" in result.stderr


@pytest.mark.parametrize("mpi", ["openmpi", "mpich"])
def test_what_ends_well_ends_quietly(train, mpi):
    result = train(ranks=4, mpi=mpi, command=["true"])
    assert result.code == 0 and len(result.stderr.splitlines()) == 1, result.stderr
    assert re.match(r"rankpool: serving tree \(360 samples, [\d. KiB]+\); memory ", result.stderr)
    assert result.stdout.startswith("rankpool: training asked for no sample of tree: let the script")


def test_one_trainer_fails_and_the_others_are_ended(train):
    assert (
        train(ranks=2, command=["sh", "-c", "[ $RANK = 1 ] && exit 9; exec sleep 1000"]).code == 9
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_training(start, number):
    one = start(ranks=2, args=["--epochs", 10**6])
    one.wait_for_batches(3)
    one.kill([one.process.pid], number)
    assert one.finish().code == 128 + number


def test_training_may_take_its_time_to_obey(start):
    script = (
        "trap 'echo saved >> obeyed; exit 5' TERM; echo >> digest; while :; do sleep 0.05; done"
    )
    one = start(command=["sh", "-c", script])
    one.wait_for_batches(1)
    one.kill([one.process.pid], signal.SIGTERM)
    assert one.finish().code == 5
    assert one.text("obeyed") == "saved\n"
