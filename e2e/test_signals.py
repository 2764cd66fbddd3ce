"""Signals at a job's end: training ends with a checkpoint, run has Slurm start the job again, and
nothing dies too early."""

import re
import signal
from pathlib import Path

import pytest
from dataset import BATCHES, EPOCHS

SCONTROL = """#!/bin/sh
echo "$@" >>{folder}/calls
case $1 in
show) cat {folder}/job ;;
requeue) cat {folder}/refusal >&2 && exit 1; kill -TERM $PPID ;;
esac
"""
RUNNING = "JobId=4711 JobState=RUNNING Reason=None Restarts=0 PreemptTime=None"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A fake of the Slurm commands that run calls: slurm.says(JOB) sets the job that they describe;
    slurm.calls() returns the calls."""

    class Slurm:
        def says(self, job, refusal=None):
            (folder / "job").write_text(job)
            if refusal:
                (folder / "refusal").write_text(refusal)

        def calls(self):
            return [line.split()[0] for line in (folder / "calls").read_text().splitlines()]

    folder = tmp_path / "slurm"
    folder.mkdir()
    (folder / "scontrol").write_text(SCONTROL.format(folder=folder))
    (folder / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    slurm = Slurm()
    slurm.says(RUNNING)
    return slurm


@pytest.fixture
def life(start, tmp_path):
    """life(**way) starts one life of a job that trains with pads and resumes from its
    checkpoint."""

    def life(args=(), options=(), **way):
        args = [
            "--epochs", EPOCHS, "--sampler", "pads", "--checkpoint", tmp_path / "checkpoint", *args,
        ]
        return start(
            args=args, options=["--requeue", "--state", tmp_path / "state", *options], **way
        )

    return life


# Open MPI's mpirun unblocks the signals that run has blocked: a signal may kill a rank while it is
# loaded, and the rank is restarted. An endless storm would kill every rank.
SHOT_AT_ANY_MOMENT = 4


def catches(pid, number):
    try:
        (mask,) = re.findall(r"SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text())
    except (OSError, ValueError):  # it has ended
        return False
    return int(mask, 16) >> number - 1 & 1


def storm(run, pids):
    """Sends the signals of sbatch --signal to processes."""
    run.kill(pids, signal.SIGUSR1)
    run.kill(pids, signal.SIGUSR2)


@pytest.mark.parametrize(
    "batches, first, second",
    [
        (BATCHES + 4, dict(), dict(ranks=2)),
        (BATCHES + 4, dict(ranks=2, torch=True, args=["--workers", 1]), dict(torch=True)),
        pytest.param(
            2 * BATCHES - 1, dict(ranks=2, mpi="mpich", trainers_per_rank=2),
            dict(ranks=2, mpi="mpich"), marks=pytest.mark.full,
        ),
    ],
)
def test_told_and_requeued(life, slurm, reference, monkeypatch, batches, first, second):
    one = life(pause=[batches], **first)
    one.wait_for_batches(batches)
    storm(one, [one.process.pid])
    one.kill([one.process.pid], signal.SIGUSR1)
    told = one.finish()
    assert (told.code, slurm.calls()) == (0, ["show", "requeue"]), told.stderr
    assert "job 4711 is requeued" in told.stderr and "stopped in epoch" in told.stdout
    assert batches <= len(told.batches) < EPOCHS * BATCHES
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    rest = life(**second).finish()
    assert rest.code == 0 and "restart 1 of job 4711: importance scores continue from" in rest.stderr
    assert told.batches + rest.batches == reference("pads").batches
    assert slurm.calls() == ["show", "requeue", "show"]  # training came to its end


@pytest.mark.parametrize(
    "job, requeued, way",
    [
        (
            "JobState=RUNNING Reason=None Restarts=0 PreemptTime=2026-11-20T15:25:12", True,
            dict(ranks=2),
        ),
        pytest.param(
            "JobState=RUNNING Reason=None Restarts=0 PreemptTime=2026-11-20T15:25:12", True,
            dict(ranks=2, torch=True, args=["--workers", 1]), marks=pytest.mark.full,
        ),
        ("JobState=COMPLETING Reason=TimeLimit Restarts=0", True, dict(ranks=2, mpi="mpich")),
        ("JobState=COMPLETING Reason=None Restarts=0", False, dict()),
    ],
    ids=["preempted", "preempted, workers", "time limit", "cancelled"],
)
def test_all_processes_are_told_to_end(life, slurm, reference, job, requeued, way):
    """Slurm sends SIGTERM to all processes at once, and SIGKILL after a while; the ranks stay for a
    checkpoint."""
    slurm.says(job)
    one = life(pause=[BATCHES + 4], **way)
    one.wait_for_batches(BATCHES + 4)
    one.kill(one.processes(), signal.SIGTERM)
    told = one.finish()
    assert ("requeue" in slurm.calls(), told.code) == (requeued, 0), told.stderr
    assert "did not save its scores" not in told.stderr and "stopped in epoch" in told.stdout
    slurm.says(RUNNING)
    assert told.batches + life(torch=way.get("torch")).finish().batches == reference("pads").batches


def test_without_a_checkpoint_importance_is_saved(start, tmp_path):
    state = tmp_path / "state"
    args = ["--epochs", EPOCHS, "--sampler", "pads"]
    one = start(args=args, options=["--state", state], pause=[BATCHES + 4])
    one.wait_for_batches(BATCHES + 4)
    one.wait_for(  # training does not wait for this file
        lambda: state.exists() and b'"Epoch":1,' in state.read_bytes(),
        "the state of the epoch's beginning was saved",
    )
    before = state.read_bytes()
    one.kill(one.processes(), signal.SIGTERM)
    assert one.finish().code == 128 + signal.SIGTERM
    assert state.read_bytes() != before


def test_slurm_refuses(life, slurm):
    slurm.says(RUNNING, refusal="Requested operation is presently disabled for job 4711")
    one = life(pause=[3])
    one.wait_for_batches(3)
    one.kill([one.process.pid], signal.SIGUSR1)
    result = one.finish()
    assert result.code == 0
    assert (
        "Slurm does not requeue job 4711 (Requested operation is presently disabled"
        in result.stderr
    )


def test_training_fails_and_is_not_requeued(start, slurm):
    result = start(command=["sh", "-c", "exit 3"], options=["--requeue"]).finish()
    assert (result.code, slurm.calls()) == (3, ["show"])


@pytest.mark.parametrize("name", ["USR1", "USR2"])
def test_told_before_training_hears(start, slurm, name):
    """The signal comes before the cache is ready, or before the training command has handlers: then
    the command dies of it."""
    one = start(ranks=2, options=[f"--requeue={name}"])
    number = getattr(signal, f"SIG{name}")
    one.wait_for(one.ranks, "a rank was started")
    one.kill([one.process.pid], number)
    result = one.finish()
    assert result.code == 128 + number and slurm.calls()[-1] == "requeue", result.stderr
    assert len(result.batches) < BATCHES


@pytest.mark.parametrize(
    "way", [dict(), dict(ranks=2), dict(ranks=2, mpi="mpich")], ids=["alone", "openmpi", "mpich"]
)
def test_ranks_live_through_user_signals(start, reference, way):
    """At every moment of their life; the first ranks from their first moment on."""
    one = start(args=["--epochs", EPOCHS, "--sampler", "pads"], pause=[BATCHES], **way)
    shot = set()
    while one.process.poll() is None:
        ranks = [
            rank
            for rank in one.ranks()
            if len(shot) < SHOT_AT_ANY_MOMENT or catches(rank, signal.SIGUSR2)
        ]
        storm(one, ranks)
        shot.update(ranks)
        if len(one.batches()) == BATCHES:
            one.go(BATCHES)
    result = one.finish()
    assert result.code == 0 and len(shot) >= way.get("ranks", 1), result.stderr
    assert "cache restarts" not in result.stdout
    assert result.batches == reference("pads").batches


def test_open_mpi_leaves_sigterm_to_the_ranks(start):
    """Its mpirun would kill them two seconds after it got a SIGTERM, and a slow checkpoint takes
    longer."""
    one = start(ranks=2, args=["--epochs", 10**6])
    one.wait_for_batches(1)
    (mpirun,) = one.mpiruns()
    status = dict(
        line.split(":\t")
        for line in Path(f"/proc/{mpirun}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert int(status["SigBlk"], 16) >> signal.SIGTERM - 1 & 1
    one.kill([one.process.pid], signal.SIGTERM)
    assert one.finish().code == 128 + signal.SIGTERM
